"""`--mode validate_mesh`."""

from __future__ import annotations

import argparse

from data.errors import UserError
from models.commands import functions
from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.flags import CHECKPOINT, MESH, MESH_FILE, OUTPUT_FILE
from models.commands.shared import check_mesh, ended, mesh_request, with_model
from models.requests import PIECES


def check(values: argparse.Namespace) -> None:
    """Raises UserError as `check_mesh`, and for flags of an extraction together with --mesh."""
    if values.mode == "validate_mesh" and values.mesh_file is not None:
        of_extraction = (values.bbox, values.checkpoint, values.threshold, values.simplify)
        is_changed = values.clean != PIECES or values.is_watertight or values.is_object
        if is_changed or any(value is not None for value in of_extraction):
            raise UserError(
                "--mesh: is coloured as it is; leave out --bbox, --checkpoint, --clean, --no-clean, --mcube_threshold, "
                "--object, --simplify and --watertight"
            )
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
