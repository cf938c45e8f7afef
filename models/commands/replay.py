"""`--mode replay`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from data.errors import UserError
from data.io.streams import say
from models.commands.command import EXIT_DONE, EXIT_NOT_FINITE, EXPERIMENT, Arguments, Command, ExperimentConfig, flag
from models.commands.shared import choose_device


def check(values: argparse.Namespace) -> None:
    """Raises UserError where the mode has no file, the file no mode, or the disk no file."""
    if (values.mode == "replay") != (values.replay is not None):
        raise UserError("--mode replay, --replay FILE: one needs the other; FILE is one from the folder anomalies/")
    if values.replay is not None and not os.path.isfile(values.replay):
        raise UserError(f"--replay {values.replay}: no such file")


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Compute a skipped step again; the exit status says whether it is still not finite."""
    choose_device(arguments, conf)
    from models.watch.replay import replay

    return EXIT_NOT_FINITE if replay(arguments.values.replay, say) else EXIT_DONE


COMMAND = Command(
    name="replay",
    line="compute a step again that a training skipped because its numbers were not finite (--replay FILE)",
    run=run,
    flags=(
        flag(
            "--replay",
            EXPERIMENT,
            type=Path,
            metavar="FILE",
            help="replay: a file from the folder anomalies/ of a training",
        ),
    ),
    check=check,
    plain_word="replay",  # `--mode replay FILE` reads best
)
