"""The flags of `--mode prepare`, and their checks."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from data.errors import UserError
from models.argument_types import MAX_INT, whole

DEFAULT_FRAMES = 80  # of a video: an orbit in steps of 4.5 degrees, well within what features bear


def add_prepare_flags(group: argparse._ArgumentGroup) -> None:
    """Photographs without cameras."""
    add = group.add_argument
    add("--images", type=Path, metavar="PATH", help="prepare: a folder of photographs, or a video")
    add(
        "--masks",
        default="",
        metavar="HOW",
        help="prepare: a folder of masks named like the photographs, or how they are found: colorkey (a backdrop of "
        "one colour), grabcut, rembg (where it is installed)",
    )
    add(
        "--frames",
        type=whole(3, MAX_INT),
        default=DEFAULT_FRAMES,
        metavar="N",
        help=f"prepare: frames to take from a video (default: {DEFAULT_FRAMES})",
    )


def check_prepare(values: argparse.Namespace) -> None:
    """Raises UserError where the mode prepare lacks its photographs or a name, or --images its mode."""
    if values.mode != "prepare":
        if values.images is not None or values.masks:
            raise UserError("--images, --masks: they belong to --mode prepare")
        return
    if values.images is None:
        raise UserError("--mode prepare: give --images FOLDER, or a video")
    if values.conf is None and not _is_name(values.case):
        raise UserError("--mode prepare: give --case NAME, a plain name; the scene is written to ./public_data/NAME")


def _is_name(text: str) -> bool:
    """Whether the text names a folder and no path."""
    return text not in ("", ".", "..") and os.path.basename(text) == text and "\0" not in text
