"""`--mode render`."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError
from data.io.files import require_place
from models.commands.command import OUTPUT, Arguments, Command, flag
from models.commands.flag_types import finite, is_index
from models.commands.mesh_flags import OUTPUT_FILE
from models.commands.shared import CHECKPOINT, MESH, RESOLUTION_LEVEL, choose_device, mesh_request, open_trained, show
from models.requests import MESH as COLOURED
from models.requests import NONE, OF_FIELD, OF_MESH, PIECES, VERTEX, VideoRequest

if TYPE_CHECKING:
    from data.scenes.scene import Scene
    from models.methods.conf import ExperimentConfig
    from models.results.camera_paths import CameraPath
    from models.results.context import EvalContext

ORBIT = "orbit"
SHOWN = (*OF_FIELD, *OF_MESH)
SECONDS, FPS = 4.0, 24.0
FASTEST = 240.0  # frames per second


def check(values: argparse.Namespace) -> None:
    """Raises UserError for invalid flags."""
    for name, most in (("seconds", math.inf), ("fps", FASTEST)):
        value = getattr(values, name)
        if value is not None and not 0 < value <= most:
            raise UserError(
                f"--{name} {value:g}: must be above 0" + (f" and at most {most:g}" if most < math.inf else "")
            )
    shown = _shown(values)
    if unknown := [name for name in shown if name not in SHOWN]:
        raise UserError(
            f"--show {values.show}: {unknown[0]!r} is not one of {', '.join(SHOWN)}; separate them with commas"
        )
    if values.mode != "render":
        return
    if values.output is not None:
        _require_place(values.output)
    if values.path != ORBIT and _views(values.path) is None and not Path(values.path).is_file():
        raise UserError(
            f"--path {values.path}: is neither {ORBIT}, nor photographs such as 0,5,9, nor an existing file"
        )


def _require_place(output: Path) -> None:
    """Raises UserError if neither a video nor a folder of images can be written."""
    if output.suffix.lower() == ".mp4":
        require_place(output, "--output")
    elif output.suffix or (output.exists() and not output.is_dir()):
        raise UserError(f"--output {output}: name a .mp4 file, or a folder for PNGs")


def _shown(values: argparse.Namespace) -> tuple[str, ...]:
    return tuple(name.strip().replace("color", "colour") for name in values.show.split(","))


def _views(text: str) -> tuple[int, ...] | None:
    """The view indices in `0,5,9`; None for any other text."""
    parts = text.split(",")
    return tuple(map(int, parts)) if len(parts) > 1 and all(is_index(part) for part in parts) else None


def camera_path(values: argparse.Namespace, scene: Scene) -> CameraPath:
    """The camera path of the flags; raises UserError for an invalid view index or file."""
    from data.scenes.scene import require_view
    from models.results import camera_paths as paths

    seconds, fps = values.seconds or SECONDS, values.fps or FPS
    if values.path == ORBIT:
        return paths.orbit(scene, seconds, fps)
    views = _views(values.path)
    if views is None:
        return paths.from_file(Path(values.path), scene)
    for view in views:
        require_view(scene, view)
    return paths.between(scene, views, seconds, fps)


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Render the video; returns the exit status."""
    values = arguments.values
    conf = choose_device(arguments, conf)
    experiment = open_trained(arguments, conf)
    from models.results.sizes import film_level

    path = camera_path(values, experiment.scene)
    is_file = values.path != ORBIT and _views(values.path) is None
    level = values.resolution_level or (1 if is_file else film_level(path.height))
    shown = _shown(values)
    # as validate_mesh does it, whose flags this mode lacks
    mesh = replace(mesh_request(values), is_refined=True, clean=PIECES, color=VERTEX if COLOURED in shown else NONE)
    request = VideoRequest(shown, level, values.output, mesh)

    def make(context: EvalContext) -> None:
        from models.results.path_video import render

        render(context, path, request)

    return show(experiment, make)


COMMAND = Command(
    name="render",
    line="write a video along a camera path (--path): colour, normals, depth or the mesh (--show)",
    run=run,
    continues=True,
    flags=(
        CHECKPOINT,
        *MESH,
        OUTPUT_FILE,
        RESOLUTION_LEVEL,
        flag(
            "--path",
            OUTPUT,
            default=ORBIT,
            metavar="PATH",
            help="render: orbit, photographs such as 0,5,9, or a camera-path file, also of nerfstudio (default: orbit)",
        ),
        flag(
            "--show",
            OUTPUT,
            default="colour",
            metavar="LIST",
            help=f"render: comma-separated images, shown side by side: {', '.join(SHOWN)} (default: colour); shape is "
            "the shaded mesh, mesh the coloured mesh",
        ),
        flag(
            "--seconds",
            OUTPUT,
            type=finite,
            metavar="S",
            help=f"render: duration in seconds (default: {SECONDS:g}, or that of the camera-path file)",
        ),
        flag(
            "--fps",
            OUTPUT,
            type=finite,
            metavar="N",
            help=f"render: frames per second (default: {FPS:g}, or those of the camera-path file)",
        ),
    ),
    check=check,
    needs_checkpoint=True,
)
