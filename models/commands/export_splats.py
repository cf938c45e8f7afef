"""`--mode export_splats`."""

from __future__ import annotations

from data.errors import UserError
from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.flags import CHECKPOINT
from models.commands.shared import with_model
from models.methods.gaussians.conf import GAUSSIANS
from models.results.trained import TrainedModel


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the Gaussians; returns the exit status."""
    if conf.model.type != GAUSSIANS:
        raise UserError(
            f"--mode export_splats: model.type = {conf.model.type} has no Gaussians; use a conf for Gaussians, such as "
            "confs/gaussians.conf"
        )
    return with_model(arguments, conf, TrainedModel.export_splats)


COMMAND = Command(
    name="export_splats",
    line="write the Gaussians of a checkpoint as .ply for Gaussian splatting viewers",
    run=run,
    flags=(CHECKPOINT,),
    needs_checkpoint=True,
)
