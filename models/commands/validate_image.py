"""`--mode validate_image`."""

from __future__ import annotations

from models.commands import functions
from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.flags import CHECKPOINT, IMAGE, LEVEL
from models.commands.shared import with_model


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Render a training view; returns the exit status."""
    values = arguments.values
    return with_model(arguments, conf, lambda model: functions.render(model, values.image, values.resolution_level))


COMMAND = Command(
    name="validate_image",
    line="render the view of one photograph: colour, ground truth, normals, distance",
    run=run,
    flags=(CHECKPOINT, IMAGE, LEVEL),
    needs_checkpoint=True,
)
