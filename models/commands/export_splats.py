"""`--mode export_splats`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data.errors import UserError
from data.io.files import write_result
from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.shared import CHECKPOINT, choose_device, open_trained
from models.methods.gaussians.conf import GAUSSIANS, SURFELS

if TYPE_CHECKING:
    from models.experiment import Experiment


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the Gaussians; returns the exit status."""
    if conf.model.type != GAUSSIANS:
        raise UserError(
            f"--mode export_splats: model.type = {conf.model.type} has no Gaussians; use a conf for Gaussians, such as "
            "confs/gaussians.conf"
        )
    choose_device(arguments, conf)
    experiment = open_trained(arguments, conf)
    try:
        _write(experiment)
    finally:
        experiment.close()
    return 0


def _write(experiment: Experiment) -> None:
    """Write `splats/<step>.ply` in the world frame, and `.splat`, y down where the up direction is known."""
    from models.checkpoints.splat_ply import NETWORK, encode
    from models.checkpoints.splat_records import SUFFIX, Y_DOWN, encode_records
    from models.monitoring.logger import RunLogger

    checkpoint, form = experiment.checkpoint, experiment.conf.model.gaussians.form
    splats = checkpoint.tensors.get(NETWORK)
    if splats is None:
        raise UserError("--mode export_splats: the checkpoint has no Gaussians; use one with model.type = gaussians")
    content = encode(splats, experiment.scene.scene_to_world, form == SURFELS)
    path = experiment.path("splats", f"{checkpoint.step:08d}.ply")
    write_result(path, content)
    scene = experiment.scene
    to_file = scene.scene_to_world if scene.frame is None else Y_DOWN @ scene.scene_to_world
    web = path.with_suffix(SUFFIX)
    write_result(web, encode_records(splats, to_file, form == SURFELS))
    with RunLogger(experiment.folder, resumed_at=checkpoint.step) as log:
        log.info(f"{len(splats['means'])} Gaussians: {path}, {web}")


COMMAND = Command(
    name="export_splats",
    line="write the Gaussians of a checkpoint as a .ply for Gaussian splatting viewers",
    run=run,
    flags=(CHECKPOINT,),
    needs_checkpoint=True,
)
