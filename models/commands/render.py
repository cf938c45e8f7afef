"""`--mode render`."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

from data.errors import UserError
from data.io.files import require_place
from models.commands import functions
from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.flags import CHECKPOINT, LEVEL, OUTPUT_FILE, RESOLUTION, SHOWN, VIDEO
from models.commands.shared import with_model
from models.requests import ORBIT, VideoRequest, view_indices

FASTEST = 240.0  # frames per second


def check(values: argparse.Namespace) -> None:
    """Raises UserError for invalid flags."""
    for name, most, words in (("seconds", math.inf, ""), ("fps", FASTEST, f" and at most {FASTEST:g}")):
        value = getattr(values, name)
        if value is not None and not 0 < value <= most:
            raise UserError(f"--{name} {value:g}: must be above 0{words}")
    shown = _shown(values)
    if unknown := [name for name in shown if name not in SHOWN]:
        names = ", ".join(SHOWN)
        raise UserError(f"--show {values.show}: {unknown[0]!r} is not one of {names}; separate them with commas")
    if values.mode != "render":
        return
    output = values.output
    if output is not None and output.suffix.lower() == ".mp4":
        require_place(output, "--output")
    elif output is not None and (output.suffix or (output.exists() and not output.is_dir())):
        raise UserError(f"--output {output}: name a .mp4 file, or a folder for PNGs")
    if values.path != ORBIT and not view_indices(values.path) and not Path(values.path).is_file():
        raise UserError(
            f"--path {values.path}: is neither {ORBIT}, nor photographs such as 0,5,9, nor an existing file"
        )


def _shown(values: argparse.Namespace) -> tuple[str, ...]:
    return tuple(name.strip().replace("color", "colour") for name in values.show.split(","))


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Render the video; returns the exit status."""
    values = arguments.values
    given = VideoRequest(values.path, _shown(values), level=values.resolution_level, output=values.output)
    mesh = replace(given.mesh, resolution=values.resolution, threshold=values.threshold)
    request = replace(given, seconds=values.seconds or given.seconds, fps=values.fps or given.fps, mesh=mesh)
    return with_model(arguments, conf, lambda model: functions.render_video(model, request))


COMMAND = Command(
    name="render",
    line="write a video along a camera path (--path): colour, normals, depth or the mesh (--show)",
    run=run,
    continues=True,
    flags=(CHECKPOINT, *RESOLUTION, OUTPUT_FILE, LEVEL, *VIDEO),
    check=check,
    needs_checkpoint=True,
)
