"""The steps of the Python interface as functions, which the modes call: see interface.py."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from data.errors import UserError
from data.io.streams import complain, quiet, say
from data.limits import excerpt, require_values
from models.config.program import PROGRAM_FOLDER, existing_in_program, find_conf
from models.machine.ranks import is_writer, joined
from models.mesh.output import require_source, require_valid
from models.requests import (
    DEFAULT_FRAMES,
    MESH,
    NONE,
    VERTEX,
    EvaluationRequest,
    ImageRequest,
    MeshRequest,
    PreparationRequest,
    TrainingRequest,
    VideoRequest,
)
from models.results import request_checks as checks
from models.results.callback import Callback, Callbacks
from models.results.trained import TrainedModel, choose_device, using_device, withdrawn_if_it_fails

if TYPE_CHECKING:
    from data.prepare.inspection.epipolar import Finding
    from data.scenes.scene import Scene
    from models.conf import ExperimentConfig
    from models.mesh.mesh import Surface
    from models.results.image_metrics import ValidationImage


P = ParamSpec("P")
R = TypeVar("R")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """The function without output; raises UserError for an argument of no class that its annotation names.

    Names are compared, as not every class of an annotation is imported. A Sequence is a list or a tuple.
    """

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        for name, value in signature(function).bind(*arguments, **named).arguments.items():
            kind = function.__annotations__[name]
            if not _is_of(value, kind):
                raise UserError(f"{function.__name__}: {name} = {excerpt(value)} must be {kind}")
        with quiet():
            return function(*arguments, **named)

    return call


def _is_of(value: Any, kind: str) -> bool:
    outer, _, inner = kind.removesuffix("]").partition("[")
    if isinstance(value, tuple | list):
        return outer == "Sequence" and all(_is_of(item, inner) for item in value)
    classes = {"None"} if value is None else {parent.__name__ for parent in value.__class__.__mro__}
    names = outer.split(" | ")
    return not classes.isdisjoint(names) or (isinstance(value, int) and "float" in names)


@dataclass(frozen=True)
class Reconstruction:
    """The results of `reconstruct`; `folder` also has result.html, images and the other files of docs/usage.md."""

    folder: Path
    mesh: Path | None  # coloured, in `frame` of the request; None if no surface was found
    metrics: dict[str, Any]  # those of docs/figures.md by name, with their units
    notes: tuple[str, ...] = ()  # sentences on what is missing or failed


@public
def read_conf(path: str | Path, case: str = "", overrides: Sequence[str] = ()) -> ExperimentConfig:
    """The conf of a HOCON file, `case` in place of ${case}, with overrides such as "train.end_iter=500".

    Overrides hold for every device; of values that are replaced later, all but those that the conf has for a device do.

    A name alone is also searched for in confs/, here and in the program's folder. With a conf of the latter, paths of
    the scene that exist there and not in the current folder are taken from there, too. Raises UserError.
    """
    from models.conf import load_config

    file = find_conf(Path(path))
    conf = load_config(file, case, overrides)
    is_programs = file.is_absolute() and file.is_relative_to(PROGRAM_FOLDER)
    return replace(conf, dataset=existing_in_program(conf.dataset)) if is_programs else conf


@public
def prepare(
    conf: ExperimentConfig,
    images: str | Path,
    *,
    masks: str = "",
    frames: int = DEFAULT_FRAMES,
    boxes: Sequence[Sequence[str]] = (),
    marker: float | None = None,
    scale: Sequence[str] = (),
    is_panorama: bool = False,
    cameras: str = "",
    lens: str = "",
    overwrite: bool = False,
) -> bool:
    """Estimate the cameras of photographs, and write the scene folder `dataset.data_dir`.

    Args:
        images: a folder of photographs, or a video, of which `frames` frames are taken.
        masks: a folder of masks, "colorkey", "grabcut", "box" (with `boxes` of name, left, top, right, bottom in
            pixels) or "rembg"; "" for none.
        marker: side of ArUco or AprilTag markers in metres. `scale`: the words of --scale. Both give the unit.
        cameras: an earlier case, or a scene folder, of the same rig; `lens`: of the same lens. "": they are estimated.
        overwrite: replace an existing scene.
    Returns:
        False if the scene was complete already. An interrupted preparation is continued.
    """
    from data.prepare.box_masks import boxes_of_flags
    from data.prepare.metric import Known
    from data.prepare.pipeline import Request
    from data.prepare.pipeline import prepare as prepare_scene
    from data.prepare.products import OVERVIEW

    target, images = Path(conf.dataset.data_dir), Path(images)
    checks.require_preparation(
        PreparationRequest(images, masks, frames, boxes, marker, scale, is_panorama, cameras, lens, overwrite)
    )
    request = Request(
        images=images,
        target=target,
        frames=frames,
        masks=masks,
        boxes=tuple(boxes_of_flags(boxes)),
        overwrite=overwrite,
        roi=conf.dataset.roi,
        cameras_outside=conf.dataset.camera_outside_sphere,
        known=Known(marker, tuple(scale)),
        is_panorama=is_panorama,
        cameras=cameras,
        lens=lens,
    )
    is_new = prepare_scene(request, say)
    say(f"check {target / OVERVIEW}: the sphere must contain the object")
    say(f"{target}: {'is complete' if is_new else 'was already complete (--overwrite repeats it)'}")
    return is_new


@public
def load_scene(conf: ExperimentConfig) -> Scene:
    """The V training images of the conf, decoded and undistorted, with cameras and masks, in the working frame.

    `images` are V of [H, W, 3], uint8 or uint16 RGB, `masks` V of [H, W] uint8 (255 on the object) or None, `c2w`
    [V, 4, 4] maps the camera (x right, y down, z forward) to the working frame.
    """
    from models.checkpoints.scenes import training_scene

    return training_scene(conf)


@public
def inspect(conf: ExperimentConfig) -> tuple[Finding, ...]:
    """The possible problems of a scene: check, verdict, measurement and consequence of each.

    Writes overview.png, health.md and health.json to inspect/. Raises UserError if they cannot be written.
    """
    from data.scenes.scene_checks import summary
    from models.results.experiment import results_folder
    from models.results.report.reconstruction import HEALTH_FILES, HEALTH_FOLDER, health_table, write_inspection

    folder = results_folder(conf)  # raises before the scene is loaded
    scene = load_scene(conf)
    say(summary(scene), *scene.notes)
    findings = write_inspection(conf, scene)
    say("", *health_table(findings, shutil.get_terminal_size().columns), "")
    say(f"written: {folder / HEALTH_FOLDER}: {', '.join(HEALTH_FILES)}")
    return findings


@public
@using_device(is_training=True)
def train(
    conf: ExperimentConfig,
    *,
    is_continue: bool = False,
    overwrite: bool = False,
    checkpoint: Path | None = None,
    device: str = "auto",
    gpu: int = 0,
    language: str | None = None,
    callbacks: Sequence[Callback] = (),
) -> int:
    """Train to `train.end_iter`, writing checkpoints, images, meshes and report.html; returns the finished steps.

    Args:
        is_continue: continue from the newest checkpoint of the folder, if there is one.
        overwrite: start again in a folder with checkpoints, which the first new one replaces.
        checkpoint: start from a .safetensors of this program or a .pth of the published code.
        language: of the report, "en" or "zh"; None for that of the browser.
        callbacks: called at reports, images, meshes and steps. What they raise is reported once, and the training goes
            on; only KeyboardInterrupt ends it, as Ctrl-C.
    Raises:
        Interrupted: after SIGINT, SIGTERM or SIGHUP, with everything saved.
        DivergedError: values do not remain finite, or the networks collapse.
        GpuFailedError: the GPU failed.
    """
    from models.results.capacity import require_batch, require_mesh
    from models.results.experiment import open_training

    checks.require_training(TrainingRequest(is_continue, overwrite, checkpoint, device, gpu, language))
    conf = choose_device(conf, device, gpu, is_trained=True)
    require_batch(conf)
    if conf.train.val_mesh_freq > 0:
        require_mesh(conf.train.mesh_resolution, f"train.mesh_resolution = {conf.train.mesh_resolution}")
    experiment = open_training(conf, is_continue, checkpoint, overwrite, complain)
    resumed_at, writes = experiment.checkpoint.step if experiment.checkpoint else None, is_writer()
    with withdrawn_if_it_fails(experiment):
        from models.runs.logger import RunLogger

        with RunLogger(experiment.folder, not writes, resumed_at, writes) as log:
            Callbacks(callbacks if writes else (), log.warn).begin(experiment)
            from models.commands.runner import Runner
            from models.machine.memory import release_all

            runner = Runner(experiment, log)
            runner.train(language, *callbacks)
            joined().close()
            steps = runner.step
            del runner
    release_all()
    return steps


@public
def open_model(
    conf: ExperimentConfig, checkpoint: Path | None = None, *, device: str = "auto", gpu: int = 0
) -> TrainedModel:
    """The model of a checkpoint, for results: without sampler, optimiser and visual hull.

    `checkpoint`: a .safetensors of this program, a .pth of the published code, or Gaussians (.ply); None for the newest
    of the folder. Use it in a `with` block, or call `close`, to return its memory. Raises UserError.
    """
    from models.results.experiment import open_results

    checks.require_training(TrainingRequest(checkpoint=checkpoint, device=device, gpu=gpu))
    return TrainedModel(open_results(choose_device(conf, device, gpu), checkpoint, complain))


@public
def render(model: TrainedModel, view: int, level: int | None = None) -> ValidationImage:
    """Render the view of photograph number `view`, write it, also to report.html, and compare it with the photograph.

    The sides are divided by `level` (None: `train.validate_resolution_level`). `rendered` has float32 arrays: `rgb`
    [h, w, 3] in [0, 1], `normal` [h, w, 3] and `distance` [h, w] in the working frame, `opacity` [h, w].
    """
    from data.scenes.scene_checks import require_view

    require_values(ImageRequest(view, level))
    require_view(model.scene, view)
    with model.working() as context:
        from models.results.image_metrics import validate_image
        from models.results.report.training_page import add_results

        picture = validate_image(context, view, level or context.experiment.conf.train.validate_resolution_level)
        add_results(context, picture=picture)
        return picture


@public
def render_video(model: TrainedModel, request: VideoRequest) -> Path:
    """Render a video along a camera path, such as once around the object; returns its file, or folder of PNGs.

    An interrupted video is continued. Raises UserError for an unusable path.
    """
    from models.results.camera_paths import chosen_path

    checks.require_video(request)
    mesh = replace(request.mesh, color=VERTEX if MESH in request.shown else NONE, output=None)
    checks.require_extraction(mesh)
    path, level = chosen_path(request, model.scene if MESH in request.shown else model.views)
    with model.working() as context:
        from models.results.videos import render as render_path

        return render_path(context, path, replace(request, level=level, mesh=mesh))


@public
def extract_mesh(model: TrainedModel, request: MeshRequest) -> Surface:
    """Extract the surface, write it to `request.output` and report.html; returns it in `request.frame` (world).

    `mesh` is a trimesh.Trimesh, `normals` float32 [V, 3] and `rgb` uint8 [V, 3] are those of its vertices, or None.
    Raises EmptySurfaceError if there is no surface at `request.threshold`.
    """
    from models.mesh.mesh import surface_to_world, working_to

    checks.require_extraction(request)
    views = model.scene if request.needs_photographs else model.views
    with model.working() as context:
        from models.results.meshes import validate_mesh
        from models.results.report.training_page import add_results

        surface = validate_mesh(context, request)
        add_results(context, surface=surface)
    return surface_to_world(surface, working_to(views, request.frame))


@public
def color_mesh(conf: ExperimentConfig, request: MeshRequest) -> Surface:
    """Colour the mesh of the file `request.mesh_file` from the photographs, without a checkpoint, and write it.

    Returns it as `extract_mesh`. Raises UserError if the file is unusable or no photograph sees it.
    """
    from models.mesh.mesh import surface_to_world, working_to
    from models.results.colored import color_file

    require_valid(request)
    require_source(request)
    surface, scene = color_file(conf, request)
    return surface_to_world(surface, working_to(scene, request.frame))


@public
def evaluate(model: TrainedModel, request: EvaluationRequest, language: str | None = None) -> dict[str, Any]:
    """Compute the metrics of docs/figures.md by name, with their units, and write them to report/ and report.html.

    None stands for a metric without reference. Raises NoReferencesError without any, and EmptySurfaceError.
    """
    from models.results.references import read_references

    checks.require_evaluation(request, language)
    checks.require_extraction(request.mesh)
    references = read_references(model.experiment, request)
    with model.working() as context:
        from models.results.evaluate import evaluate as compute
        from models.results.report.training_page import add_results

        evaluation = compute(context, request, references)
        picture, surface, metrics = evaluation.picture, evaluation.surface, evaluation.values
        add_results(context, picture=picture, surface=surface, metrics=metrics, language=language)
        return evaluation.values
