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
    """Write `splats/<step>.ply` in the world frame, and `.splat` and `.spz`, upright if the up direction is known."""
    from models.checkpoints.splat_ply import NETWORK, encode
    from models.checkpoints.splat_records import SUFFIX, Y_DOWN, encode_records
    from models.checkpoints.splat_spz import FROM_Y_DOWN, SpzError, encode_spz
    from models.checkpoints.splat_spz import SUFFIX as SPZ_SUFFIX
    from models.monitoring.logger import RunLogger

    checkpoint, scene = experiment.checkpoint, experiment.scene
    is_flat = experiment.conf.model.gaussians.form == SURFELS
    splats = checkpoint.tensors.get(NETWORK)
    if splats is None:
        raise UserError("--mode export_splats: the checkpoint has no Gaussians; use one with model.type = gaussians")
    y_down = scene.scene_to_world if scene.frame is None else Y_DOWN @ scene.scene_to_world
    path = experiment.path("splats", f"{checkpoint.step:08d}.ply")
    files = {
        path: encode(splats, scene.scene_to_world, is_flat),
        path.with_suffix(SUFFIX): encode_records(splats, y_down, is_flat),
    }
    missing = ""
    try:
        files[path.with_suffix(SPZ_SUFFIX)] = encode_spz(splats, FROM_Y_DOWN @ y_down, is_flat)
    except SpzError as error:
        missing = str(error)
    for file, content in files.items():
        write_result(file, content)
    with RunLogger(experiment.folder, resumed_at=checkpoint.step) as log:
        log.info(f"{len(splats['means'])} Gaussians: {', '.join(map(str, files))}")
        if missing:
            log.info(missing)


COMMAND = Command(
    name="export_splats",
    line="write the Gaussians of a checkpoint as .ply, .splat and .spz for Gaussian splatting viewers",
    run=run,
    flags=(CHECKPOINT,),
    needs_checkpoint=True,
)
