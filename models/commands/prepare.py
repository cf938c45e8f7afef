"""`--mode prepare`: estimates cameras and prints the next commands. Jittor is not loaded."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from data.errors import UserError
from models.commands import functions
from models.commands.command import EXIT_DONE, Arguments, Command, ExperimentConfig
from models.commands.flags import OVERWRITE, PHOTOGRAPHS
from models.commands.printed import command_line, of_the_scene
from models.config.program import found_conf

NEXT_CONF = Path("confs/fast.conf")  # with masks or without; its scene folder is ./public_data/CASE_NAME


def check(values: argparse.Namespace) -> None:
    """Raises UserError if --images or --case is missing."""
    if values.mode not in ("prepare", "reconstruct"):
        return
    if values.images is None:
        raise UserError(f"--mode {values.mode}: give --images FOLDER, or a video")
    if values.mode == "prepare" and values.conf is None and not _is_name(values.case):
        raise UserError("--mode prepare: give --case NAME, a plain name; the scene is written to ./public_data/NAME")


def _is_name(text: str) -> bool:
    """Whether the text names a folder and no path."""
    return text not in ("", ".", "..") and os.path.basename(text) == text and "\0" not in text


def preparation(values: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `functions.prepare` besides the conf."""
    names = ("images", "masks", "frames", "boxes", "marker", "scale", "is_panorama", "overwrite")
    return {name: getattr(values, name) for name in names} | {"scale": values.scale or ()}


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Prepare the scene folder; returns the exit status."""
    functions.prepare(conf, **preparation(arguments.values))
    return EXIT_DONE


def next_steps(arguments: Arguments) -> list[str]:
    """The next commands, one per line."""
    conf = arguments.conf or found_conf(NEXT_CONF)
    flags = of_the_scene(arguments, conf, "dataset.roi")  # the prepared scene contains the region
    return [f"next: {command_line([*flags, *more])}" for more in (["--mode", "inspect"], [])]


COMMAND = Command(
    name="prepare",
    line="estimate cameras from photographs or a video (--images); create the scene folder ./public_data/NAME",
    run=run,
    continues=True,
    flags=(OVERWRITE, *PHOTOGRAPHS),
    check=check,
    plain_word="images",
    next_steps=next_steps,
    conf_of_case=NEXT_CONF,
)
