"""`--mode inspect`. Jittor is not loaded."""

from __future__ import annotations

from pathlib import Path

from data.io.streams import say
from models.commands.command import EXIT_DONE, Arguments, Command, ExperimentConfig
from models.commands.view import VIEWER, place_of


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Look at the scene, and show it where that is asked for; returns the exit status."""
    from models.commands.inspection import inspect

    for text in inspect(conf):
        say(text)
    if arguments.values.view:
        _show(arguments, conf)
    return EXIT_DONE


def _show(arguments: Arguments, conf: ExperimentConfig) -> None:
    """The scene in the viewer, until Ctrl-C."""
    from data.scenes.load import load_scene
    from models.experiment import background
    from models.viewer.scenery import look_at_scene

    scene = load_scene(conf.dataset, background(conf))
    look_at_scene(scene, Path(conf.dataset.data_dir), conf.dataset.downscale, place_of(arguments), say)


COMMAND = Command(
    name="inspect",
    line="overview.png, cameras and photographs with the region of interest, and a table of what may go wrong",
    run=run,
    flags=VIEWER,
    conf_of_case=Path("confs/womask.conf"),  # it trains on any scene, with masks or without
)
