"""`--mode prepare`: runs `data.prepare` and prints the next commands. Jittor is not loaded."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from data.errors import UserError
from data.io.streams import say
from models.commands import interface
from models.commands.command import EXIT_DONE, PREPARATION, Arguments, Command, ExperimentConfig, flag
from models.commands.flag_types import MAX_INT, positive, whole
from models.commands.interface import DEFAULT_FRAMES
from models.commands.printed import command_line, of_the_scene
from models.commands.shared import OVERWRITE
from models.config.program import found_conf

NEXT_CONF = Path("confs/fast.conf")  # with masks or without; its scene folder is ./public_data/CASE_NAME
REGION = "dataset.roi"


def check(values: argparse.Namespace) -> None:
    """Raises UserError if --mode prepare lacks --images or --case, or another mode has its flags."""
    if values.mode not in ("prepare", "reconstruct"):
        if values.images is not None or values.masks or values.box:
            raise UserError("--images, --masks, --box: are flags of --mode prepare and --mode reconstruct")
        if values.marker is not None or values.scale is not None or values.panorama:
            raise UserError("--marker, --scale, --panorama: are flags of --mode prepare and --mode reconstruct")
        return
    if values.box and values.masks != "box":
        raise UserError("--box: needs --masks box")
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
    """Prepare the scene folder and print the next commands; returns the exit status."""
    from data.prepare.products import OVERVIEW

    values, target = arguments.values, Path(conf.dataset.data_dir)
    is_new = interface.prepare(
        conf,
        values.images,
        masks=values.masks,
        frames=values.frames,
        boxes=values.box,
        marker=values.marker,
        scale=values.scale or (),
        is_panorama=values.panorama,
        overwrite=values.overwrite,
    )
    say(f"check {target / OVERVIEW}: the sphere must contain the object")
    say(f"{target}: {'is complete' if is_new else 'was already complete (--overwrite repeats it)'}")
    return EXIT_DONE


def next_steps(arguments: Arguments) -> list[str]:
    """The next commands, one per line."""
    conf = arguments.conf or found_conf(NEXT_CONF)
    flags = of_the_scene(arguments, conf, REGION)  # the prepared scene contains the region
    return [f"next: {command_line([*flags, *more])}" for more in (["--mode", "inspect"], [])]


COMMAND = Command(
    name="prepare",
    line="estimate cameras from photographs or a video (--images); create the scene folder ./public_data/NAME",
    run=run,
    continues=True,
    flags=(
        OVERWRITE,
        flag(
            "--images",
            PREPARATION,
            type=Path,
            metavar="PATH",
            help="prepare, reconstruct: folder of photographs, or a video",
        ),
        flag(
            "--masks",
            PREPARATION,
            default="",
            metavar="SOURCE",
            help="prepare, reconstruct: folder of masks named as the photographs, or colorkey (backdrop of "
            "one colour), grabcut, box (rectangles on a few photographs) or rembg (if installed)",
        ),
        flag(
            "--box",
            PREPARATION,
            nargs=5,
            action="append",
            default=[],
            metavar=("NAME", "X0", "Y0", "X1", "Y1"),
            help="prepare, reconstruct: with --masks box, a rectangle around the object: left, top, right, "
            "bottom in pixels; may be repeated; more are read from boxes.json",
        ),
        flag(
            "--marker",
            PREPARATION,
            type=positive,
            metavar="SIDE",
            help="prepare, reconstruct: side in metres of ArUco or AprilTag markers, which give the scale",
        ),
        flag(
            "--scale",
            PREPARATION,
            nargs="+",
            metavar="VALUE",
            help="prepare, reconstruct: a known length in metres, between two points of the world frame, `x y "
            "z x y z LENGTH`, or in the pixels of two photographs, `IMAGE x y x y IMAGE x y x y LENGTH`",
        ),
        flag(
            "--panorama",
            PREPARATION,
            action="store_true",
            help="prepare, reconstruct: photographs or frames are equirectangular panoramas and are cut into "
            "perspective views; tagged ones are recognised without it",
        ),
        flag(
            "--frames",
            PREPARATION,
            type=whole(3, MAX_INT),
            default=DEFAULT_FRAMES,
            metavar="N",
            help=f"prepare, reconstruct: number of frames to use from a video (default: {DEFAULT_FRAMES})",
        ),
    ),
    check=check,
    plain_word="images",
    next_steps=next_steps,
    conf_of_case=NEXT_CONF,
)
