"""An experiment's folder, scene and checkpoint, with all checks that are possible before Jittor is imported.

The folder has the layout of the published code: checkpoints/, logs/, meshes/, normals/, recording/, render/,
validations_fine/. The folder itself may be a link; links inside it are not written through.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from data.errors import SceneError, UserError
from data.io.files import LINK_WORDS, make_folder
from data.io.lock import TakenError
from data.prepare.load import load_held_out
from data.scenes.scene import Posed, Scene
from models.checkpoints import splat_ply
from models.checkpoints.folder import SUFFIX, CheckpointFolder, has_checkpoints, latest_checkpoint
from models.checkpoints.ours import load_checkpoint
from models.checkpoints.published import read_torch_checkpoint, to_checkpoint
from models.checkpoints.scenes import (
    SceneOfModel,
    background,
    earlier_plan,
    for_photographs,
    measured,
    require_same_data,
    require_same_frame,
    require_same_masks,
    training_scene,
)
from models.conf import ExperimentConfig, as_trained, network_differences, parse_config
from models.machine.ranks import here, is_writer
from models.methods.gaussians.conf import GAUSSIANS, GaussiansConfig
from models.methods.registry import decide
from models.plan import TrainingPlan, wants_masks
from models.runs.logger import LOG_FOLDER, TEXT_LOG
from models.runs.run_files import OF_A_RESULT, OF_A_TRAINING, RECORDING, FolderLock, RunFiles
from models.training.checkpoint import Checkpoint, CheckpointError

CHECKPOINTS = "checkpoints"
# Folders and files that runs write; checked for links early. Other links are detected when they are written.
WRITTEN: tuple[str, ...] = (CHECKPOINTS, LOG_FOLDER, f"{LOG_FOLDER}/{TEXT_LOG}", RECORDING)
WRITTEN += ("distances", "inspect", "meshes", "normals", "render", "report", "splats", "validations_fine")
PUBLISHED_SUFFIX = ".pth"


@dataclass(frozen=True)
class Experiment:
    """A conf with its scene and the checkpoint to start from (None: a new training)."""

    conf: ExperimentConfig
    folder: Path
    given: Scene | SceneOfModel  # the latter for results
    checkpoint: Checkpoint | None

    traces: RunFiles | None = None  # files of this run, for removal; None if it writes none
    lock: FolderLock | None = None  # of a training
    store: CheckpointFolder | None = None  # the checkpoints of a training
    plan: TrainingPlan = TrainingPlan()  # once the model is built

    @property
    def scene(self) -> Scene:
        """The photographs with their cameras; see `SceneOfModel.scene`."""
        return self.given if isinstance(self.given, Scene) else self.given.scene

    @property
    def views(self) -> Posed:
        """The cameras; see `SceneOfModel.views`."""
        return self.given if isinstance(self.given, Scene) else self.given.views

    def close(self) -> None:
        """Release the lock of the folder."""
        if self.lock is not None:
            self.lock.release()

    def withdraw(self) -> None:
        """Remove the files of a run that failed before it started."""
        if self.traces is not None:
            self.traces.remove()

    def ensure_folder(self) -> bool:
        """Keep the files from now on; False if the folder or its lock was deleted, which are then created again."""
        if self.traces is not None:
            self.traces.keep()
        return self.lock is None or self.lock.is_held()

    def path(self, kind: str, name: str) -> Path:
        """Path of a result, `<folder>/<kind>/<name>`; the folder is created. Raises UserError for other names."""
        if os.path.basename(name) != name or name in ("", ".", ".."):
            raise UserError(f"{name!r}: is not the name of a file in {self.folder / kind}; choose another")
        return self.subfolder(kind) / name

    def subfolder(self, kind: str) -> Path:
        """`<folder>/<kind>`, created if needed; raises UserError if it cannot be created, or is a link."""
        try:
            return make_folder(self.folder, kind)
        except OSError as error:
            raise UserError(
                f"the folder {self.folder / kind} cannot be created ({error.strerror}): change general.base_exp_dir"
            ) from error


def open_training(
    conf: ExperimentConfig, is_continue: bool, checkpoint: Path | None, overwrite: bool, warn: Callable[[str], None]
) -> Experiment:
    """The inputs of a training; of several processes, only one has the lock and the checkpoint.

    Args:
        is_continue: continue from the newest checkpoint of the folder, if there is one.
        checkpoint: continue from this file instead, in a folder without checkpoints.
        overwrite: allow existing checkpoints, which are removed when the first new one is complete.
    Raises:
        UserError: scene, conf and checkpoint are inconsistent; the folder has checkpoints and none of these arguments
            is given; another training is running in the folder.
    """
    folder = results_folder(conf)
    if here().size > 1 and conf.model.type == GAUSSIANS:
        raise UserError(f"model.type = {GAUSSIANS}: cannot be shared by {here().size} ranks; start one process")
    scene = training_scene(conf)
    if scene.masks is None and wants_masks(conf.train) and conf.model.needs_masks:
        raise SceneError(
            f"{conf.dataset.data_dir} has no masks, and train.mask_weight = {conf.train.mask_weight:g} needs them: "
            "add a folder mask/, or set train.mask_weight = 0"
        )
    if not is_writer():
        return Experiment(conf, folder, scene, None)
    checkpoints = folder / CHECKPOINTS
    start = latest_checkpoint(checkpoints, warn) if is_continue and checkpoint is None else None
    if checkpoint is not None:
        start = for_photographs(_read(checkpoint), scene)
    if start is not None:
        conf = _fitting(conf, start)
        require_same_frame(start, scene)
        require_same_masks(start, scene, conf)
        if checkpoint is None:
            require_same_data(start, scene)
    goes_on = is_continue and checkpoint is None
    at_risk = "" if checkpoint is None else SUFFIX  # a published checkpoint may be in the folder itself
    if not goes_on and not overwrite and has_checkpoints(checkpoints, at_risk):
        raise UserError(_existing_checkpoints(checkpoints, checkpoint))
    traces = RunFiles(folder, OF_A_TRAINING)
    try:
        lock = FolderLock(folder)
    except TakenError:
        raise  # new files in the folder belong to the other training
    except UserError:
        traces.remove()
        raise
    store = CheckpointFolder(checkpoints, conf.train.keep_checkpoints, starts_over=overwrite)
    return Experiment(conf, folder, scene, start, traces, lock, store)


def _existing_checkpoints(checkpoints: Path, chosen: Path | None) -> str:
    """The error message for a training in a folder with checkpoints from which it would not continue."""
    ways = "--is_continue to continue, --overwrite to start again (they are removed when the first new one is complete)"
    if chosen is not None:
        ways = (
            f"--overwrite to replace them by those after {chosen} (they are removed when the first new one is "
            "complete), --is_continue without --checkpoint to continue from the newest"
        )
    return f"{checkpoints} contains checkpoints of an earlier run: pass {ways}, or another general.base_exp_dir"


def open_results(conf: ExperimentConfig, checkpoint: Path | None, warn: Callable[[str], None]) -> Experiment:
    """The inputs of results; raises UserError if there is no checkpoint, and the scene does so at its first use."""
    folder = results_folder(conf)
    checkpoints = folder / CHECKPOINTS
    if checkpoint is not None and checkpoint.suffix == splat_ply.PLY_SUFFIX:
        return Experiment(*_imported(conf, folder, checkpoint), RunFiles(folder, OF_A_RESULT))
    loaded = latest_checkpoint(checkpoints, warn) if checkpoint is None else _read(checkpoint)
    if loaded is None:
        published = sorted(checkpoints.glob(f"ckpt_*{PUBLISHED_SUFFIX}"))
        hint = f"pass --checkpoint {published[-1]}" if published else "train first, or pass --checkpoint FILE"
        raise CheckpointError(f"no checkpoint: there is no ckpt_*.safetensors in {checkpoints}; {hint}")
    conf = _fitting(conf, loaded)
    if "conf" in loaded.state:  # the length of its training is that of the checkpoint, whatever the conf says now
        length = parse_config(loaded.state["conf"], "the checkpoint's conf").train.end_iter
        conf = replace(conf, train=replace(conf.train, end_iter=length))
    return Experiment(conf, folder, SceneOfModel(conf, loaded), loaded, RunFiles(folder, OF_A_RESULT))


def open_scene(conf: ExperimentConfig) -> Experiment:
    """The inputs of a result that needs no checkpoint; raises UserError for an unusable folder or scene."""
    folder = results_folder(conf)
    return Experiment(conf, folder, training_scene(conf), None, RunFiles(folder, OF_A_RESULT))


def _imported(conf: ExperimentConfig, folder: Path, path: Path) -> tuple[ExperimentConfig, Path, Scene, Checkpoint]:
    """An experiment with the Gaussians of a .ply in the scene's frame; raises UserError for other model types.

    A .ply has no learned exposures, so they are switched off in the conf.
    """
    if not isinstance(conf.model, GaussiansConfig):
        raise UserError(
            f"--checkpoint {path}: contains Gaussians, and model.type is {conf.model.type}; use a conf for Gaussians, "
            "such as confs/gaussians.conf"
        )
    scene = training_scene(conf)
    imported = splat_ply.to_checkpoint(path, conf.model.gaussians, scene.scene_to_world, conf.train.end_iter)
    photographs = replace(conf.model.photographs, exposure=False)  # a .ply has no exposure
    return replace(conf, model=replace(conf.model, photographs=photographs)), folder, scene, imported


def held_out_scene(experiment: Experiment, group: str) -> Scene | None:
    """The images of the group VALIDATION or TEST; None if there are none. Raises UserError if they are invalid."""
    return load_held_out(experiment.conf.dataset, experiment.scene, group, background(experiment.conf))


def plan_of(experiment: Experiment) -> TrainingPlan:
    """The plan of a training; for results, that of the checkpoint if it has one."""
    if isinstance(experiment.given, SceneOfModel):
        return experiment.given.plan
    conf = experiment.conf
    return decide(conf.model, conf.train, measured(experiment.scene), earlier_plan(experiment.checkpoint))


def results_folder(conf: ExperimentConfig) -> Path:
    """`general.base_exp_dir`.

    Raises UserError for an invalid folder name, an existing file of that name, and links inside the folder.
    """
    folder = Path(conf.general.base_exp_dir)
    try:
        taken = [path for path in (folder, *folder.parents) if path.is_symlink() or path.exists()]
        taken = [path for path in taken if not path.is_dir()]
    except OSError as error:
        raise UserError(f"general.base_exp_dir = {folder}: cannot be used ({error.strerror}); choose another") from None
    if taken:
        raise UserError(f"general.base_exp_dir = {folder}: {taken[0]} is not a folder; choose another one")
    links = [folder / name for name in WRITTEN if (folder / name).is_symlink()]
    if links:
        raise UserError(f"{links[0]}: {LINK_WORDS}, or make general.base_exp_dir itself the link")
    return folder


def _read(path: Path) -> Checkpoint:
    """Read a checkpoint of this program or of the published code, by its suffix."""
    if path.suffix == PUBLISHED_SUFFIX:
        return to_checkpoint(read_torch_checkpoint(path), str(path))
    if path.suffix == splat_ply.PLY_SUFFIX:
        raise UserError(
            f"--checkpoint {path}: training cannot continue from a .ply of Gaussians, which has no optimiser state; "
            "pass a ckpt_*.safetensors"
        )
    return load_checkpoint(path)


def _fitting(conf: ExperimentConfig, checkpoint: Checkpoint) -> ExperimentConfig:
    """The conf with the values of the device that the checkpoint was made on.

    Raises CheckpointError, naming the keys, if the conf and the checkpoint have different networks.
    """
    text = checkpoint.state.get("conf")
    if text is None:
        return conf  # a published checkpoint has no conf: shapes are compared when the weights are set
    before = parse_config(text, "the checkpoint's conf")
    conf = as_trained(conf, before)
    differences = network_differences(before.model, conf.model)
    if differences:
        raise CheckpointError(
            f"the conf differs from the checkpoint's networks: {', '.join(differences)}; use the conf it was trained "
            "with, recording/config.conf in its folder, or set these keys by --set"
        )
    return conf
