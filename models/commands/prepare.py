"""`--mode prepare`: from the flags to `data.prepare`, and what to do next. Jittor is not loaded."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from data.errors import UserError
from data.io.streams import say
from models.commands.command import EXIT_DONE, PREPARATION, Arguments, Command, ExperimentConfig, flag
from models.commands.conf import key_of
from models.commands.flag_types import MAX_INT, whole
from models.commands.shared import OVERWRITE

NEXT_CONF = Path("confs/fast.conf")  # a mesh in minutes, with masks or without; it looks in ./public_data/CASE_NAME
REGION = "dataset.roi"
DEFAULT_FRAMES = 80  # of a video: an orbit in steps of 4.5 degrees, well within what features bear


def check(values: argparse.Namespace) -> None:
    """Raises UserError where the mode prepare lacks its photographs or a name, or --images its mode."""
    if values.mode not in ("prepare", "reconstruct"):
        if values.images is not None or values.masks or values.box:
            raise UserError("--images, --masks, --box: they belong to --mode prepare and --mode reconstruct")
        return
    if values.box and values.masks != "box":
        raise UserError("--box: draws masks and needs --masks box")
    if values.mode == "reconstruct":
        return
    if values.images is None:
        raise UserError("--mode prepare: give --images FOLDER, or a video")
    if values.conf is None and not _is_name(values.case):
        raise UserError("--mode prepare: give --case NAME, a plain name; the scene is written to ./public_data/NAME")


def _is_name(text: str) -> bool:
    """Whether the text names a folder and no path."""
    return text not in ("", ".", "..") and os.path.basename(text) == text and "\0" not in text


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Find the cameras of photographs and say what to do next; returns the exit status."""
    from data.prepare.boxes import boxes_of_flags
    from data.prepare.pipeline import Request, prepare
    from data.prepare.products import OVERVIEW

    target = Path(conf.dataset.data_dir)
    request = Request(
        images=arguments.values.images,
        target=target,
        frames=arguments.values.frames,
        masks=arguments.values.masks,
        boxes=tuple(boxes_of_flags(arguments.values.box)),
        overwrite=arguments.values.overwrite,
        roi=conf.dataset.roi,
        cameras_outside=conf.dataset.camera_outside_sphere,
    )
    is_new = prepare(request, say)
    say(f"look at {target / OVERVIEW}: the sphere has to hold what is to be reconstructed")
    say(f"{target}: {'is ready' if is_new else 'is ready already (--overwrite makes it anew)'}")
    for line in next_steps(arguments):
        say(line)
    return EXIT_DONE


def next_steps(arguments: Arguments) -> list[str]:
    """The commands that follow, one a line."""
    flags = [*_flag("--conf", str(arguments.conf or NEXT_CONF)), *_flag("--case", arguments.case)]
    settings = [text for text in arguments.overrides if key_of(text) != REGION]  # the scene has it
    flags += [word for text in settings for word in _flag("--set", text)]
    return [f"next: python exp_runner.py {shlex.join([*flags, *more])}" for more in (["--mode", "inspect"], [])]


def _flag(name: str, value: str) -> list[str]:
    """A flag with its value, [] for none; with an equals sign, a value that starts with a dash is none the less one."""
    if value.startswith("-"):
        return [f"{name}={value}"]
    return [name, value] if value else []


COMMAND = Command(
    name="prepare",
    line="photographs or a video without cameras (--images) become the scene folder ./public_data/NAME",
    run=run,
    flags=(
        OVERWRITE,
        flag(
            "--images",
            PREPARATION,
            type=Path,
            metavar="PATH",
            help="prepare, reconstruct: a folder of photographs, or a video",
        ),
        flag(
            "--masks",
            PREPARATION,
            default="",
            metavar="HOW",
            help="prepare, reconstruct: a folder of masks named like the photographs, or how they are found: colorkey "
            "(a backdrop of one colour), grabcut, box (rectangles on a few photographs), rembg (where it is installed)",
        ),
        flag(
            "--box",
            PREPARATION,
            nargs=5,
            action="append",
            default=[],
            metavar=("NAME", "X0", "Y0", "X1", "Y1"),
            help="prepare, reconstruct: with --masks box, a rectangle around the object on a photograph: left, top, "
            "right, bottom in pixels; may be repeated; others are read from boxes.json beside the photographs or in "
            "the scene folder",
        ),
        flag(
            "--frames",
            PREPARATION,
            type=whole(3, MAX_INT),
            default=DEFAULT_FRAMES,
            metavar="N",
            help=f"prepare, reconstruct: frames to take from a video (default: {DEFAULT_FRAMES})",
        ),
    ),
    check=check,
    conf_of_case=NEXT_CONF,
)
