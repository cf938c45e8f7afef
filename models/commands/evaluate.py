"""`--mode evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.commands.command import Arguments, Command
from models.commands.shared import CHECKPOINT, MESH, choose_device, mesh_request, open_trained, show

if TYPE_CHECKING:
    from models.kinds.conf import ExperimentConfig
    from models.results.snapshot import Snapshot


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write figures and the report's picture; returns the exit status."""
    from models.experiment import require_references

    choose_device(arguments, conf)
    request = mesh_request(arguments.values)
    experiment = open_trained(arguments, conf)
    require_references(experiment)

    def result(snapshot: Snapshot) -> None:
        from models.results.evaluation import evaluate

        evaluate(snapshot, request)

    return show(experiment, result)


COMMAND = Command(
    name="evaluate",
    line="PSNR on held-out photographs and Chamfer distance to a reference mesh, where the conf names them",
    run=run,
    flags=(CHECKPOINT, *MESH),
    needs_checkpoint=True,
)
