"""`--mode export_splats`."""

from __future__ import annotations

from data.errors import UserError
from data.io.files import write_result
from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.flags import CHECKPOINT
from models.commands.shared import with_model
from models.methods.gaussians.conf import GAUSSIANS, SURFELS, GaussiansConfig
from models.results.trained import TrainedModel


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the Gaussians; returns the exit status."""
    if conf.model.type != GAUSSIANS:
        raise UserError(
            f"--mode export_splats: model.type = {conf.model.type} has no Gaussians; use a conf for Gaussians, such as "
            "confs/gaussians.conf"
        )
    return with_model(arguments, conf, _write)


def _write(model: TrainedModel) -> None:
    """Write `splats/<step>.ply` in the world frame."""
    from models.checkpoints.splat_ply import NETWORK, encode
    from models.training.logger import RunLogger

    experiment = model.experiment
    checkpoint, block = experiment.checkpoint, experiment.conf.model
    if checkpoint is None or NETWORK not in checkpoint.tensors:
        raise UserError("--mode export_splats: the checkpoint has no Gaussians; use one with model.type = gaussians")
    path = experiment.path("splats", f"{checkpoint.step:08d}.ply")
    splats = checkpoint.tensors[NETWORK]
    is_flat = isinstance(block, GaussiansConfig) and block.gaussians.form == SURFELS
    write_result(path, encode(splats, model.views.scene_to_world, is_flat))
    with RunLogger(experiment.folder, resumed_at=checkpoint.step) as log:
        log.info(f"{len(splats['means'])} Gaussians: {path}")


COMMAND = Command(
    name="export_splats",
    line="write the Gaussians of a checkpoint as .ply for Gaussian splatting viewers",
    run=run,
    flags=(CHECKPOINT,),
    needs_checkpoint=True,
)
