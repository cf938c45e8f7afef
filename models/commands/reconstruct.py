"""`--mode reconstruct`: from photographs or a video to a coloured mesh, by a sequence of other modes."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError
from models.commands import prepare
from models.commands.command import PREPARATION, Arguments, Command, flag
from models.commands.flag_types import finite
from models.commands.mesh_flags import FINISH
from models.commands.shared import LANGUAGE, MESH
from models.requests import AUTO, AUTO_MINUTES, TEXTURE

if TYPE_CHECKING:
    from models.methods.conf import ExperimentConfig

NAME = "reconstruct"
MOST_MINUTES = 60.0 * 24 * 30


def minutes_or_auto(text: str) -> float | str:
    """An argparse type: a finite number, or AUTO."""
    return AUTO if text == AUTO else finite(text)


def check(values: argparse.Namespace) -> None:
    """Raises UserError for a missing --images, flags that do not apply, and --minutes with another mode."""
    if values.mode != NAME:
        if values.minutes is not None:
            raise UserError("--minutes: is a flag of --mode reconstruct; for other modes set train.end_iter")
        return
    if values.images is None:
        raise UserError("--mode reconstruct: give --images FOLDER, or a video")
    if values.minutes not in (None, AUTO) and not 0 < values.minutes <= MOST_MINUTES:
        raise UserError(f"--minutes {values.minutes:g}: must be above 0 and at most {MOST_MINUTES:g}")
    for name, is_given in {
        "--is_continue": values.is_continue,
        "--checkpoint": values.checkpoint is not None,
    }.items():
        if is_given:
            raise UserError(f"{name}: does not apply to --mode reconstruct, which continues by itself; leave it out")
    for name, is_given in (("--output", values.output is not None), ("--colour texture", values.colour == TEXTURE)):
        if is_given:
            raise UserError(
                f"{name}: --mode reconstruct writes result/mesh.ply, with colours per vertex; leave it out, and change "
                "--output, and --colour if need be, in the last command of result.md afterwards"
            )


def case_of(values: argparse.Namespace, case: str) -> str:
    """The scene's name: that of --case, else the name of the folder or video without special characters.

    Raises UserError if nothing remains.
    """
    if case:
        return case
    source = Path(values.images).resolve()
    name = re.sub(r"[^\w-]+", "_", source.stem if source.is_file() else source.name).strip("_-")
    if not name:
        raise UserError(
            f"--images {values.images}: its name contains no letter or digit, so it is no valid scene name; "
            "pass --case NAME"
        )
    return name


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Run the modes; returns the exit status."""
    from data.io.clock import recorded
    from models.commands.reconstruction import reconstruct

    del conf  # without --case it is that of the bundled scene
    case = case_of(arguments.values, arguments.case)
    with recorded() as times:
        return reconstruct(arguments, case, arguments.values.minutes, times)


COMMAND = Command(
    name=NAME,
    line="create a mesh, images and metrics from photographs or a video (--images); resumes when repeated",
    run=run,
    continues=True,
    flags=(
        flag(
            "--minutes",
            PREPARATION,
            type=minutes_or_auto,
            metavar="M",
            help=f"reconstruct: minutes of the whole command; {AUTO} (default): until doubling the steps hardly "
            f"improves the PSNR, at most {AUTO_MINUTES:g}",
        ),
        *prepare.COMMAND.flags,
        *MESH,
        *FINISH,
        LANGUAGE,
    ),
    check=check,
    plain_word="images",
    conf_of_case=Path("confs/fast.conf"),
)
