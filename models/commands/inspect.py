"""`--mode inspect`. Jittor is not loaded."""

from __future__ import annotations

from pathlib import Path

from data.io.streams import say
from models.commands.command import EXIT_DONE, Arguments, Command, ExperimentConfig
from models.commands.view import VIEWER, keys_of, place_of


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Inspect the scene, and show it with --view; returns the exit status."""
    from models.commands.inspection import inspect

    for text in inspect(conf):
        say(text)
    if arguments.values.view:
        _show(arguments, conf)
    return EXIT_DONE


def _show(arguments: Arguments, conf: ExperimentConfig) -> None:
    """Show the scene in the viewer until Ctrl-C."""
    from models.experiment import training_scene
    from models.viewer.scene_viewer import look_at_scene

    look_at_scene(training_scene(conf), keys_of(arguments, conf), conf.dataset.downscale, place_of(arguments), say)


COMMAND = Command(
    name="inspect",
    line="write overview.png (cameras, photographs, region of interest) and a table of possible problems",
    run=run,
    flags=VIEWER,
    conf_of_case=Path("confs/fast.conf"),
)
