"""`--mode inspect`. Jittor is not loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

from data.io.streams import say
from models.commands import interface
from models.commands.command import EXIT_DONE, Arguments, Command, ExperimentConfig
from models.commands.view import VIEWER, keys_of, place_of


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Inspect the scene, and show it with --view; returns the exit status."""
    from data.scenes.scene import summary
    from models.checkpoints.scenes import first_scene_kept
    from models.results.experiment import results_folder
    from models.results.report.inspection import FILES, FOLDER, table

    folder = results_folder(conf)  # raises before the scene is loaded
    with first_scene_kept():
        scene = interface.load_scene(conf)
        say(summary(scene), *scene.notes)
        found = interface.inspect(conf)
        say(
            "", *table(found, shutil.get_terminal_size().columns), "", f"written: {folder / FOLDER}: {', '.join(FILES)}"
        )
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
