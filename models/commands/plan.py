"""`--mode plan`. Nothing is written."""

from __future__ import annotations

from data.io.streams import say
from models.commands.command import EXIT_DONE, Arguments, Command, ExperimentConfig
from models.results.trained import choose_device


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Measure and print the table; returns the exit status."""
    from models.checkpoints.scenes import training_scene
    from models.methods.capacity import require_batch

    conf = choose_device(conf, arguments.device, arguments.gpu, is_trained=True)
    require_batch(conf)
    scene = training_scene(conf)  # before Jittor, which the next import loads
    from models.results.plan_table import table

    for text in table(conf, scene):
        say(text)
    return EXIT_DONE


COMMAND = Command(
    name="plan",
    line="measure memory and speed for several values of n_importance, or how many Gaussians fit; writes nothing",
    run=run,
)
