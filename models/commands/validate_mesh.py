"""`--mode validate_mesh`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.commands.command import Arguments, Command
from models.commands.mesh_flags import FINISH, check, full_request
from models.commands.shared import CHECKPOINT, MESH, choose_device, open_trained, show

if TYPE_CHECKING:
    from models.kinds.conf import ExperimentConfig
    from models.results.snapshot import Snapshot


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the surface; returns the exit status."""
    choose_device(arguments, conf)
    request = full_request(arguments.values)

    def result(snapshot: Snapshot) -> None:
        from models.results.meshes import validate_mesh

        validate_mesh(snapshot, request)

    return show(open_trained(arguments, conf), result)


COMMAND = Command(
    name="validate_mesh",
    line="write the surface of a checkpoint as a coloured mesh",
    run=run,
    flags=(CHECKPOINT, *MESH, *FINISH),
    check=check,
    needs_checkpoint=True,
)
