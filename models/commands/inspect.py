"""`--mode inspect`. Jittor is not loaded."""

from __future__ import annotations

from pathlib import Path

from data.io.streams import say
from models.commands import functions
from models.commands.command import EXIT_DONE, Arguments, Command, ExperimentConfig
from models.commands.flags import VIEWER
from models.commands.view import keys_of, place_of


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Inspect the scene, and show it with --view; returns the exit status."""
    from models.checkpoints.scenes import scene_cache

    with scene_cache():
        functions.inspect(conf)
        scene = functions.load_scene(conf)
    if arguments.values.view:
        from models.viewer.sessions import look_at_scene

        look_at_scene(scene, keys_of(arguments, conf), conf.dataset.downscale, place_of(arguments), say)
    return EXIT_DONE


COMMAND = Command(
    name="inspect",
    line="write overview.png (cameras, photographs, region of interest) and a table of possible problems",
    run=run,
    flags=VIEWER,
    conf_of_case=Path("confs/fast.conf"),
)
