"""`--mode validate_mesh`."""

from __future__ import annotations

import argparse

from models.commands import functions
from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.flags import CHECKPOINT, MESH, MESH_FILE, OUTPUT_FILE
from models.commands.shared import check_mesh, ended, mesh_request, with_model
from models.mesh.output import require_source


def check(values: argparse.Namespace) -> None:
    """Raises UserError as `check_mesh`, and for flags of an extraction together with --mesh."""
    if values.mode == "validate_mesh" and values.mesh_file is not None:
        require_source(mesh_request(values), values.checkpoint is not None or values.clean is None)
    check_mesh(values)


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the mesh; returns the exit status."""
    request = mesh_request(arguments.values)
    if request.mesh_file is not None:
        return ended(lambda: functions.color_mesh(conf, request))
    return with_model(arguments, conf, lambda model: functions.extract_mesh(model, request))


COMMAND = Command(
    name="validate_mesh",
    line="write the surface of a checkpoint as a coloured mesh",
    run=run,
    continues=True,
    flags=(CHECKPOINT, *MESH, MESH_FILE, OUTPUT_FILE),
    check=check,
    needs_checkpoint=True,
)
