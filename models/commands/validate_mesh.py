"""`--mode validate_mesh`."""

from __future__ import annotations

from models.commands import interface
from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.mesh_flags import FINISH, MESH_FILE, OUTPUT_FILE, check, full_request
from models.commands.shared import CHECKPOINT, MESH, ended, with_model


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the mesh; returns the exit status."""
    request = full_request(arguments.values)
    if request.mesh_file is not None:
        return ended(lambda: interface.color_mesh(conf, request))
    return with_model(arguments, conf, lambda model: interface.extract_mesh(model, request))


COMMAND = Command(
    name="validate_mesh",
    line="write the surface of a checkpoint as a coloured mesh",
    run=run,
    continues=True,
    flags=(CHECKPOINT, *MESH, *FINISH, MESH_FILE, OUTPUT_FILE),
    check=check,
    needs_checkpoint=True,
)
