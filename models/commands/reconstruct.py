"""`--mode reconstruct`: photographs or a video become a coloured mesh, by the other modes one after the other."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError
from models.commands.command import PREPARATION, Arguments, Command, flag
from models.commands.flag_types import finite

if TYPE_CHECKING:
    from models.kinds.conf import ExperimentConfig

NAME = "reconstruct"
DEFAULT_MINUTES = 10.0
MOST_MINUTES = 60.0 * 24 * 30


def check(values: argparse.Namespace) -> None:
    """Raises UserError where the mode lacks its photographs, or --minutes its mode or its sense."""
    if values.mode != NAME:
        if values.minutes is not None:
            raise UserError("--minutes: belongs to --mode reconstruct; elsewhere train.end_iter says how long")
        return
    if values.images is None:
        raise UserError("--mode reconstruct: give --images FOLDER, or a video")
    if values.minutes is not None and not 0 < values.minutes <= MOST_MINUTES:
        raise UserError(f"--minutes {values.minutes:g}: must be above 0 and at most {MOST_MINUTES:g}")
    for name, is_given in {
        "--is_continue": values.is_continue,
        "--checkpoint": values.checkpoint is not None,
        "--output": values.output is not None,
    }.items():
        if is_given:
            raise UserError(
                f"{name}: not for --mode reconstruct, which goes on by itself and writes to one folder; leave it out"
            )


def case_of(values: argparse.Namespace, case: str) -> str:
    """The scene's name: that of --case, else the name of the folder or video, as far as it is a plain one.

    Raises UserError where it leaves none.
    """
    if case:
        return case
    source = Path(values.images).resolve()
    name = re.sub(r"[^\w-]+", "_", source.stem if source.is_file() else source.name).strip("_-")
    if not name:
        raise UserError(f"--images {values.images}: its name is none for a scene; pass --case NAME")
    return name


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Go through the modes; returns the exit status."""
    from models.commands.reconstruction import reconstruct

    del conf  # that of the bundled scene, where no --case was given
    minutes = arguments.values.minutes
    case = case_of(arguments.values, arguments.case)
    return reconstruct(arguments, case, DEFAULT_MINUTES if minutes is None else minutes)


COMMAND = Command(
    name=NAME,
    line="photographs or a video (--images) become a coloured mesh, pictures and figures in one folder; goes on when "
    "called again",
    run=run,
    flags=(
        flag(
            "--minutes",
            PREPARATION,
            type=finite,
            metavar="M",
            help=f"reconstruct: minutes of training (default: {DEFAULT_MINUTES:g}); the cameras before it and the mesh "
            "after it take theirs besides",
        ),
    ),
    check=check,
    conf_of_case=Path("confs/fast.conf"),
)
