"""`--mode validate_mesh`."""

from __future__ import annotations

from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.mesh_flags import FINISH, OUTPUT_FILE, check, full_request
from models.commands.shared import CHECKPOINT, MESH, choose_device, open_trained, show


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the mesh; returns the exit status."""
    choose_device(arguments, conf)
    request = full_request(arguments.values)
    experiment = open_trained(arguments, conf)  # checked before the next import, which loads Jittor
    from models.results.meshes import validate_mesh

    return show(experiment, lambda context: validate_mesh(context, request))


COMMAND = Command(
    name="validate_mesh",
    line="write the surface of a checkpoint as a coloured mesh",
    run=run,
    flags=(CHECKPOINT, *MESH, *FINISH, OUTPUT_FILE),
    check=check,
    needs_checkpoint=True,
    is_shared=True,
)
