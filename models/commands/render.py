"""`--mode render`."""

from __future__ import annotations

import argparse
from dataclasses import replace

from data.errors import UserError
from models.commands import functions
from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.flags import CHECKPOINT, LEVEL, OUTPUT_FILE, RESOLUTION, VIDEO
from models.commands.shared import with_model
from models.requests import SHOWN, VideoRequest
from models.results.request_checks import require_video


def check(values: argparse.Namespace) -> None:
    """Raises UserError for invalid flags."""
    shown = _shown(values)
    if unknown := [name for name in shown if name not in SHOWN]:
        names = ", ".join(SHOWN)
        raise UserError(f"--show {values.show}: {unknown[0]!r} is not one of {names}; separate them with commas")
    if values.mode == "render":
        require_video(_request(values))


def _shown(values: argparse.Namespace) -> tuple[str, ...]:
    return tuple(name.strip().replace("color", "colour") for name in values.show.split(","))


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Render the video; returns the exit status."""
    request = _request(arguments.values)
    return with_model(arguments, conf, lambda model: functions.render_video(model, request))


def _request(values: argparse.Namespace) -> VideoRequest:
    given = VideoRequest(values.path, _shown(values), level=values.resolution_level, output=values.output)
    mesh = replace(given.mesh, resolution=values.resolution, threshold=values.threshold)
    return replace(given, seconds=values.seconds or given.seconds, fps=values.fps or given.fps, mesh=mesh)


COMMAND = Command(
    name="render",
    line="write a video along a camera path (--path): colour, normals, depth or the mesh (--show)",
    run=run,
    continues=True,
    flags=(CHECKPOINT, *RESOLUTION, OUTPUT_FILE, LEVEL, *VIDEO),
    check=check,
    needs_checkpoint=True,
)
