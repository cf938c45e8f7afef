"""The modes of one model: training, and results of a checkpoint. Actions import the modules that load Jittor."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import UserError
from data.io.streams import complain, say
from models.commands import cases, flags, functions
from models.commands.command import (
    EXIT_DONE,
    EXIT_EMPTY_SURFACE,
    EXIT_FAILED,
    Arguments,
    Command,
    command_line,
    failed,
    scene_flags,
)
from models.config.program import DEMO, find_conf
from models.mesh.output import require_format, require_source, require_valid
from models.methods.gaussians.conf import GAUSSIANS
from models.requests import NETWORK, SHOWN, VERTEX, VIEWS, EvaluationRequest, MeshRequest, VideoRequest
from models.results import request_checks as checks
from models.results.trained import TrainedModel
from models.viewer.server import require_viser

if TYPE_CHECKING:
    from models.conf import ExperimentConfig
    from models.viewer.sessions import Place
    from models.viewer.tools import ConfKeys


def read_conf(arguments: Arguments) -> ExperimentConfig:
    """The conf of --conf, --case, --set and --seed; raises UserError if it is invalid."""
    scenes = getattr(arguments.values, "cases", None)
    case = cases.scenes_of(scenes)[0] if scenes and not arguments.case else arguments.case
    return functions.read_conf(conf_file(arguments), case, arguments.overrides)


def conf_file(arguments: Arguments) -> Path:
    """The file of --conf; raises UserError if the mode needs one and none is given.

    The default is ./confs/demo.conf, or with --case the mode's `conf_of_case`.
    """
    if arguments.conf is not None:
        return arguments.conf
    if not arguments.case:
        return find_conf(DEMO)
    if arguments.command.conf_of_case is None:
        raise UserError(
            f"--case {arguments.case}: the default conf, {DEMO}, trains on the bundled scene; "
            "give a conf too, such as --conf confs/fast.conf"
        )
    return find_conf(arguments.command.conf_of_case)


def exit_status(work: Callable[[], object], advice: str = "") -> int:
    """Do the work; returns the exit status. `advice`: how to continue after a signal."""
    from models.mesh.extraction import EmptySurfaceError
    from models.runs.stops import Interrupted
    from models.training.checkpoint import DivergedError

    try:
        work()
    except EmptySurfaceError as error:
        return failed(str(error), EXIT_EMPTY_SURFACE)
    except Interrupted as stop:
        complain(f"{stop}{advice}")
        return stop.status
    except DivergedError as error:
        return failed(str(error), EXIT_FAILED)
    return EXIT_DONE


def with_model(arguments: Arguments, conf: ExperimentConfig, work: Callable[[TrainedModel], object]) -> int:
    """Make a result of the model of the flags; returns the exit status."""
    from models.results.capacity import require_mesh

    if any(flag.name == "--resolution" for flag in arguments.command.flags):  # before a checkpoint is read
        require_mesh(arguments.values.resolution, f"--resolution {arguments.values.resolution}")

    def result() -> None:
        with functions.open_model(conf, arguments.checkpoint, device=arguments.device, gpu=arguments.gpu) as model:
            work(model)

    return exit_status(result)


def of_model(work: Callable[[TrainedModel, argparse.Namespace], object]) -> Callable[[Arguments, Any], int]:
    """The action of a mode that makes a result of a model, with the flags' values."""
    return lambda arguments, conf: with_model(arguments, conf, lambda model: work(model, arguments.values))


def request_fields(kind: type, values: argparse.Namespace) -> dict[str, Any]:
    """The flags whose names are those of fields of a dataclass."""
    return {field.name: getattr(values, field.name) for field in fields(kind) if field.name in values}


def run_train(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Train to the last step."""
    if arguments.values.cases is not None:
        return cases.run_cases(arguments)
    values, callbacks = arguments.values, []
    if values.view:
        from models.viewer.sessions import ViewerCallback

        callbacks.append(ViewerCallback(viewer_keys(arguments, conf), viewer_place(arguments), say))
    return exit_status(
        lambda: functions.train(
            conf,
            is_continue=values.is_continue,
            overwrite=values.overwrite,
            checkpoint=arguments.checkpoint,
            device=arguments.device,
            gpu=arguments.gpu,
            language=values.language,
            callbacks=callbacks,
        ),
        "; continue with --is_continue",
    )


def check_train(values: argparse.Namespace) -> None:
    """Raises UserError for flags that exclude --cases, and if --view needs a missing package."""
    cases.check(values)
    check_view(values)


def after_train(arguments: Arguments) -> list[str]:
    """Where the results are, and the command that extracts the mesh; nothing after several scenes."""
    if arguments.values.cases is not None:
        return []
    from models.checkpoints.folder import checkpoint_files
    from models.results.experiment import CHECKPOINTS
    from models.results.report.document import REPORT

    folder = Path(read_conf(arguments).general.base_exp_dir)
    lines = [f"checkpoint: {path}" for path in list(checkpoint_files(folder / CHECKPOINTS).values())[-1:]]
    lines += [f"report: {folder / REPORT}"] if (folder / REPORT).is_file() else []
    extraction = command_line([*scene_flags(arguments, arguments.conf), "--mode", "validate_mesh"])
    return [*lines, f"next: {extraction}"]


TRAIN = Command(
    name="train",
    line="train on the scene of the conf; writes checkpoints, images and meshes",
    run=run_train,
    check=check_train,
    next_steps=after_train,
    is_shared=True,
)


def mesh_request(values: argparse.Namespace) -> MeshRequest:
    """The mesh that all flags describe; raises UserError for a format that does not support the colours."""
    color = require_format(values.output, values.colour) if values.output else values.colour or VERTEX
    bbox = values.bbox and tuple(values.bbox)
    return MeshRequest(**request_fields(MeshRequest, values) | {"color": color, "bbox": bbox})


def check_mesh(values: argparse.Namespace) -> None:
    """Raises UserError for a mesh that cannot be made or written, and for flags of an extraction with --mesh."""
    request = mesh_request(values)
    if request.mesh_file is not None:
        require_source(request, values.checkpoint is not None or values.clean is None)
    require_valid(request)


def run_mesh(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the mesh of a checkpoint, or colour that of --mesh."""
    request = mesh_request(arguments.values)
    if request.mesh_file is not None:
        return exit_status(lambda: functions.color_mesh(conf, request))
    return with_model(arguments, conf, lambda model: functions.extract_mesh(model, request))


VALIDATE_MESH = Command(
    name="validate_mesh",
    line="write the surface of a checkpoint as a coloured mesh",
    run=run_mesh,
    continues=True,
    check=check_mesh,
    needs_checkpoint=True,
)


VALIDATE_IMAGE = Command(
    name="validate_image",
    line="render the view of one photograph: colour, ground truth, normals, distance",
    run=of_model(lambda model, values: functions.render(model, values.image, values.resolution_level)),
    needs_checkpoint=True,
)


def is_interpolation(text: str) -> bool:
    """Whether a --mode value is interpolate_I_J; raises UserError without two view indices."""
    name, *views = text.split("_")
    if name == "interpolate" and (len(views) != 2 or not all(flags.is_index(view) for view in views)):
        raise UserError(
            f"--mode {text}: write it as interpolate_I_J with two photograph numbers, such as interpolate_0_5"
        )
    return name == "interpolate"


def run_interpolation(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the video between two photographs."""
    from data.scenes.scene_checks import require_view

    first, second = map(int, arguments.mode.split("_")[1:])

    def write(model: TrainedModel) -> None:
        for view in (first, second):
            require_view(model.views, view)
        context = model.context
        from models.results.videos import interpolate

        interpolate(context, first, second, arguments.values.resolution_level)

    return with_model(arguments, conf, write)


INTERPOLATE = Command(
    name="interpolate",
    display_name="interpolate_I_J",
    line="write a video from photograph I to photograph J and back, such as interpolate_0_5",
    run=run_interpolation,
    is_named=is_interpolation,
    needs_checkpoint=True,
)


def video_request(values: argparse.Namespace) -> VideoRequest:
    """The video that the flags describe; raises UserError for an unknown image in --show."""
    images = tuple(name.strip().replace("color", "colour") for name in values.show.split(","))
    if unknown := [name for name in images if name not in SHOWN]:
        names = ", ".join(SHOWN)
        raise UserError(f"--show {values.show}: {unknown[0]!r} is not one of {names}; separate them with commas")
    request = VideoRequest(values.path, images, level=values.resolution_level, output=values.output)
    mesh = replace(request.mesh, resolution=values.resolution, threshold=values.threshold)
    return replace(request, seconds=values.seconds or request.seconds, fps=values.fps or request.fps, mesh=mesh)


RENDER = Command(
    name="render",
    line="write a video along a camera path (--path): colour, normals, depth or the mesh (--show)",
    run=of_model(lambda model, values: functions.render_video(model, video_request(values))),
    continues=True,
    check=lambda values: checks.require_video(video_request(values)),
    needs_checkpoint=True,
)


def evaluation_request(values: argparse.Namespace) -> EvaluationRequest:
    """The metrics that the flags select; raises UserError for flags that require each other."""
    if (values.protocol is None) != (values.dtu is None):
        raise UserError("--protocol dtu and --dtu FOLDER must be given together; FOLDER has ObsMask/ and Points/stl/")
    mesh = MeshRequest(values.resolution, values.threshold)
    return EvaluationRequest(mesh, **request_fields(EvaluationRequest, values))


EVALUATE = Command(
    name="evaluate",
    line="metrics on test photographs, against ground truth and SfM points, and of cameras: a table and files",
    run=of_model(lambda model, values: functions.evaluate(model, evaluation_request(values), values.language)),
    check=lambda values: checks.require_evaluation(evaluation_request(values)),
    needs_checkpoint=True,
)


def run_export(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the Gaussians."""
    if conf.model.type != GAUSSIANS:
        raise UserError(
            f"--mode export_splats: model.type = {conf.model.type} has no Gaussians; use a conf for Gaussians, such as "
            "confs/gaussians.conf"
        )
    return with_model(arguments, conf, TrainedModel.export_splats)


EXPORT_SPLATS = Command(
    name="export_splats",
    line="write the Gaussians of a checkpoint as .ply for Gaussian splatting viewers",
    run=run_export,
    needs_checkpoint=True,
)


def check_view(values: argparse.Namespace) -> None:
    """Raises UserError if the viewer is needed and not installed."""
    if values.mode == "view" or values.view:
        require_viser("--view" if values.view else "--mode view")


def viewer_place(arguments: Arguments) -> Place:
    """Address, port and language of the viewer."""
    from models.viewer.sessions import Place

    values = arguments.values
    return Place(values.host, values.port, values.language)


def viewer_keys(arguments: Arguments, conf: ExperimentConfig) -> ConfKeys:
    """The conf file and scene folder, for the keys that the viewer saves."""
    from models.viewer.tools import ConfKeys

    dataset = conf.dataset
    return ConfKeys(conf_file(arguments), Path(dataset.data_dir), dataset.roi, dataset.bbox)


def run_view(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Show a trained model until Ctrl-C."""
    from models.checkpoints.folder import checkpoint_files
    from models.results.experiment import CHECKPOINTS

    def show(model: TrainedModel) -> None:
        folder, scene = model.experiment.folder, model.scene  # raises before Jittor is loaded
        files = {} if arguments.checkpoint else checkpoint_files(folder / CHECKPOINTS)
        context = model.context
        from models.viewer.sessions import look_at_model

        clean = VIEWS if scene.masks is None else None  # as reconstruct delivers it
        mesh = MeshRequest(context.experiment.conf.train.mesh_resolution, clean=clean, color=NETWORK)
        look_at_model(context, mesh, files, viewer_keys(arguments, conf), viewer_place(arguments))

    return with_model(arguments, conf, show)


VIEW = Command(
    name="view",
    line="show the model in the browser: mesh, cameras, points, region of interest, renderings",
    run=run_view,
    check=check_view,
    needs_checkpoint=True,
)
