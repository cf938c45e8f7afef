"""`--mode compare`. Nothing is trained or written; Jittor is not loaded."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError
from data.io.streams import say
from models.commands.command import EXIT_DONE, EXPERIMENT, Arguments, Command, flag

if TYPE_CHECKING:
    from models.kinds.conf import ExperimentConfig

LEAST = 2


def check(values: argparse.Namespace) -> None:
    """Raises UserError where the mode has too few experiments, or experiments another mode."""
    given = values.experiments or ()
    if values.mode == "compare" and len(given) < LEAST:
        raise UserError("--mode compare: name the folders of two experiments or more, such as exp/a exp/b")
    if given and values.mode != "compare":
        raise UserError("--experiments: belongs to --mode compare")


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Print the figures of evaluated experiments side by side; returns the exit status."""
    from models.results.comparison import compare

    del conf
    lines = list(compare(arguments.values.experiments))  # nothing is said where one of them cannot be read
    say(*lines)
    return EXIT_DONE


COMMAND = Command(
    name="compare",
    line="the figures of evaluated experiments side by side, on top what differs between their confs",
    run=run,
    flags=(
        flag(
            "--experiments",
            EXPERIMENT,
            type=Path,
            nargs="+",
            metavar="EXP",
            help="compare: the folders of the experiments; the flag itself may be left out",
        ),
    ),
    check=check,
    plain_word="experiments",  # `--mode compare EXP_A EXP_B` reads best
)
