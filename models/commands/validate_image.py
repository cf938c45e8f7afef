"""`--mode validate_image`."""

from __future__ import annotations

from models.commands import interface
from models.commands.command import OUTPUT, Arguments, Command, ExperimentConfig, flag
from models.commands.flag_types import MAX_INT, whole
from models.commands.shared import CHECKPOINT, RESOLUTION_LEVEL, with_model


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Render a training view; returns the exit status."""
    values = arguments.values
    return with_model(arguments, conf, lambda model: interface.render(model, values.image, values.resolution_level))


COMMAND = Command(
    name="validate_image",
    line="render the view of one photograph: colour, ground truth, normals, distance",
    run=run,
    flags=(
        CHECKPOINT,
        flag(
            "--image",
            OUTPUT,
            type=whole(0, MAX_INT),
            default=0,
            metavar="N",
            help="validate_image: number of the training photograph (default: 0)",
        ),
        RESOLUTION_LEVEL,
    ),
    needs_checkpoint=True,
)
