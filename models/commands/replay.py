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
    """Raises UserError if --mode replay or --replay is given alone, or the file does not exist."""
    if (values.mode == "replay") != (values.replay is not None):
        raise UserError("--mode replay and --replay FILE must be given together; FILE is in the folder anomalies/")
    if values.replay is not None and not os.path.isfile(values.replay):
        raise UserError(f"--replay {values.replay}: no such file")


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Compute a skipped step again; the exit status tells whether it still contains NaN or Inf."""
    choose_device(arguments, conf)
    from models.monitoring.replay import replay

    return EXIT_NOT_FINITE if replay(arguments.values.replay, say) else EXIT_DONE


COMMAND = Command(
    name="replay",
    line="recompute a step that a training skipped because of NaN or Inf (--replay FILE)",
    run=run,
    flags=(
        flag(
            "--replay",
            EXPERIMENT,
            type=Path,
            metavar="FILE",
            help="replay: file in the folder anomalies/ of a training",
        ),
    ),
    check=check,
    plain_word="replay",  # allows `--mode replay FILE`
)
