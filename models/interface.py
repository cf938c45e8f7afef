"""The Python interface: read a conf, then train, render, extract and evaluate as the modes of the command line do.

Every function takes a conf of `read_conf`; results are in its `general.base_exp_dir`. Mistakes in the conf, the scene
or the arguments raise `data.errors.UserError` with one sentence that names the fix, before Jittor is loaded where
possible. `device`: "auto" (a GPU if one works, else the CPU), "cpu" or "cuda"; `gpu`: the index of the GPU.
`checkpoint`: a .safetensors of this program or a .pth of the published code; None for the newest of the folder.

Frames: the world frame is that of the given cameras, with their units; in the working frame, the region of interest is
the unit sphere. `scene.scene_to_world` [4, 4] maps the latter to the former.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import UserError, is_allocation_failure
from data.io.streams import complain
from models.machine.ranks.place import is_writer, own_gpu
from models.machine.ranks.ranks import joined
from models.requests import UNIT, EvaluationRequest, MeshRequest

if TYPE_CHECKING:
    from data.scenes.config import DatasetConfig
    from data.scenes.scene import Scene
    from models.callback import Callback
    from models.evaluation.image_metrics import ValidationImage
    from models.experiment import Experiment
    from models.methods.conf import ExperimentConfig
    from models.runner import Runner
    from models.surface.mesh import Surface

PROGRAM_FOLDER = Path(__file__).resolve().parents[1]
CONFS = Path("confs")


def read_conf(path: str | Path, case: str = "", overrides: Sequence[str] = ()) -> ExperimentConfig:
    """The conf of a HOCON file, `case` in place of ${case}, with overrides such as "train.end_iter=500".

    Overrides hold for every device; of values that are replaced later, all but those that the conf has for a device do.

    A name alone is also searched for in confs/, here and in the program's folder. With a conf of the latter, paths of
    the scene that exist there and not in the current folder are taken from there, too. Raises UserError.
    """
    from models.methods.conf import load_config

    found = found_conf(Path(path))
    conf = load_config(found, case, overrides)
    is_own = found.is_absolute() and found.is_relative_to(PROGRAM_FOLDER)
    return replace(conf, dataset=_rebased(conf.dataset)) if is_own else conf


def load_scene(conf: ExperimentConfig) -> Scene:
    """The V training images of the conf, decoded and undistorted, with cameras and masks, in the working frame.

    `images` are V of [H, W, 3], uint8 or uint16 RGB, `masks` V of [H, W] uint8 (255 on the object) or None, `c2w`
    [V, 4, 4] maps the camera (x right, y down, z forward) to the working frame.
    """
    from models.experiment import training_scene

    return training_scene(conf)


def train(
    conf: ExperimentConfig,
    *,
    is_continue: bool = False,
    overwrite: bool = False,
    checkpoint: Path | None = None,
    device: str = "auto",
    gpu: int = 0,
    language: str | None = None,
    followers: Callable[[Experiment], Sequence[Callback]] = lambda experiment: (),
) -> int:
    """Train to `train.end_iter`, writing checkpoints, images, meshes and report.html; returns the finished steps.

    Args:
        is_continue: continue from the newest checkpoint of the folder, if there is one.
        overwrite: start again in a folder with checkpoints, which the first new one replaces.
        language: of the report, "en" or "zh"; None for that of the browser.
        followers: further callbacks of the training, such as the viewer.
    Raises:
        Interrupted: after SIGINT, SIGTERM or SIGHUP, with everything saved.
        DivergedError: values do not remain finite, or the networks collapse.
        GpuFailedError: the GPU failed.
    """
    from models.experiment import open_training
    from models.methods.capacity import require_batch, require_mesh

    conf = choose_device(conf, device, gpu, is_trained=True)
    require_batch(conf)
    if conf.train.val_mesh_freq > 0:
        require_mesh(conf.train.mesh_resolution, f"train.mesh_resolution = {conf.train.mesh_resolution}")
    experiment = open_training(conf, is_continue, checkpoint, overwrite, complain)
    callbacks = followers(experiment)

    def to_the_end(runner: Runner) -> int:
        if is_writer():
            runner.train(language, *callbacks)
            joined().dismiss()
        else:
            runner.trainer.follow()
        return runner.step

    return work_on(experiment, to_the_end)


def render(
    conf: ExperimentConfig,
    view: int,
    *,
    level: int | None = None,
    checkpoint: Path | None = None,
    device: str = "auto",
    gpu: int = 0,
) -> ValidationImage:
    """Render the view of photograph number `view`, write it, also to report.html, and compare it with the photograph.

    The sides are divided by `level` (None: `train.validate_resolution_level`). `rendered` has float32 arrays: `rgb`
    [h, w, 3] in [0, 1], `normal` [h, w, 3] and `distance` [h, w] in the working frame, `opacity` [h, w].
    """
    conf = choose_device(conf, device, gpu)
    experiment = open_trained(conf, checkpoint, view)
    size = level or conf.train.validate_resolution_level

    def shown(runner: Runner) -> ValidationImage:
        from models.evaluation.image_metrics import validate_image
        from models.report.added import with_picture

        context = runner.snapshot()
        picture = validate_image(context, view, size)
        with_picture(context, picture)
        return picture

    return work_on(experiment, shown)


def extract_mesh(
    conf: ExperimentConfig,
    request: MeshRequest,
    *,
    checkpoint: Path | None = None,
    device: str = "auto",
    gpu: int = 0,
) -> Surface:
    """Extract the surface, write it to `request.output` and report.html; returns it in `request.frame` (world).

    `mesh` is a trimesh.Trimesh, `normals` float32 [V, 3] and `rgb` uint8 [V, 3] are those of its vertices, or None.
    With `request.mesh_file` that mesh is coloured instead, without a checkpoint. Raises EmptySurfaceError if there is
    no surface at `request.threshold`.
    """
    from models.methods.capacity import require_mesh
    from models.surface.mesh import require_valid, surface_to_world

    require_valid(request)
    if request.mesh_file is not None:
        from models.results.colored import color_file

        surface, scene = color_file(conf, request.mesh_file, request)
        return surface if request.frame == UNIT else surface_to_world(surface, scene.scene_to_world)
    conf = choose_device(conf, device, gpu)
    require_mesh(request.resolution, f"--resolution {request.resolution}")
    experiment = open_trained(conf, checkpoint)

    def extracted(runner: Runner) -> Surface:
        from models.report.added import with_mesh
        from models.results.meshes import validate_mesh

        context = runner.snapshot()
        surface = validate_mesh(context, request)
        with_mesh(context, surface)
        return surface

    surface = work_on(experiment, extracted)
    return surface if request.frame == UNIT else surface_to_world(surface, experiment.scene.scene_to_world)


def evaluate(
    conf: ExperimentConfig,
    request: EvaluationRequest,
    *,
    checkpoint: Path | None = None,
    device: str = "auto",
    gpu: int = 0,
    language: str | None = None,
) -> dict[str, Any]:
    """Compute the metrics of docs/figures.md by name, with their units, and write them to report/ and report.html.

    None stands for a metric without reference. Raises EmptySurfaceError.
    """
    from models.evaluation.references import read_references
    from models.surface.mesh import require_valid

    require_valid(request.mesh)
    conf = choose_device(conf, device, gpu)
    experiment = open_trained(conf, checkpoint)
    references = read_references(experiment, request)

    def evaluated(runner: Runner) -> dict[str, Any]:
        from models.evaluation.evaluate import evaluate as compute
        from models.report.added import with_evaluation

        context = runner.snapshot()
        found = compute(context, request, references)
        with_evaluation(context, found, language)
        return found.values

    return work_on(experiment, evaluated)


def choose_device(conf: ExperimentConfig, device: str, gpu: int, is_trained: bool = False) -> ExperimentConfig:
    """Choose the device; returns the conf with the values for it.

    Raises UserError if it is not available, or the networks need more memory than is free.
    """
    from models.machine import backend
    from models.methods.capacity import require_networks
    from models.methods.device_values import for_device

    backend.select(device, own_gpu(gpu, os.environ))
    chosen = for_device(conf, backend.device_name()) if conf.by_device else conf
    require_networks(chosen.model, is_trained)
    return chosen


def open_trained(conf: ExperimentConfig, checkpoint: Path | None, *views: int) -> Experiment:
    """The experiment with its checkpoint; raises UserError if there is none, or for an invalid view index."""
    from data.scenes.scene import require_view
    from models.experiment import open_results

    experiment = open_results(conf, checkpoint, complain)
    for view in views:
        require_view(experiment.scene, view)
    return experiment


def work_on(experiment: Experiment, work: Callable[[Runner], Any]) -> Any:
    """The result of `work` with the experiment, after Jittor is loaded, with a log.

    Closes the experiment and returns the memory of the model to the system, for further work in this process. A
    UserError, or the end of memory, removes the files of the run.
    """
    from models.training.logger import RunLogger

    resumed_at = experiment.checkpoint.step if experiment.checkpoint else None
    try:
        writes = is_writer()
        with RunLogger(experiment.folder, not writes, resumed_at, writes) as log:
            from models.runner import Runner

            result = work(Runner(experiment, log))
            joined().close()
        from models.machine.memory import release_all

        release_all()
        return result
    except (UserError, ImportError, MemoryError):
        experiment.withdraw()
        raise
    except (RuntimeError, OSError) as error:
        if is_allocation_failure(error):
            experiment.withdraw()
        raise
    finally:
        experiment.close()


def found_conf(path: Path) -> Path:
    """The conf file that a --conf names: it, or `confs/NAME` for a name alone, here or in the program's folder.

    If there is none of them, the first of them in a folder that holds confs, which the message then names.
    """
    names = [path] if path.parent != Path() else [path, CONFS / path]
    places = [place / name for place in (Path(), PROGRAM_FOLDER) for name in names]
    found = [place for place in places if os.path.isfile(place)]
    return next(iter(found or (place for place in places if any(place.parent.glob("*.conf")))), path)


def _rebased(dataset: DatasetConfig) -> DatasetConfig:
    """The dataset block with each path that exists in the program's folder and not here replaced by that there."""
    paths = {name: getattr(dataset, name) for name in ("data_dir", "test_dir", "reference_mesh")}
    moved: dict[str, Any] = {
        name: str(PROGRAM_FOLDER / path)
        for name, path in paths.items()
        if path and not os.path.exists(path) and os.path.exists(PROGRAM_FOLDER / path)
    }
    return replace(dataset, **moved)
