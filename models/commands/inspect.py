"""`--mode inspect`. Jittor is not loaded."""

from __future__ import annotations

from pathlib import Path

from data.io.streams import say
from models.commands.command import EXIT_DONE, Arguments, Command, ExperimentConfig


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Look at the scene; returns the exit status."""
    from models.commands.inspection import inspect

    del arguments
    for text in inspect(conf):
        say(text)
    return EXIT_DONE


COMMAND = Command(
    name="inspect",
    line="overview.png, cameras and photographs with the region of interest, and a table of what may go wrong",
    run=run,
    conf_of_case=Path("confs/womask.conf"),  # it trains on any scene, with masks or without
)
