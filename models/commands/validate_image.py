"""`--mode validate_image`."""

from __future__ import annotations

from models.commands.command import OUTPUT, Arguments, Command, ExperimentConfig, flag
from models.commands.flag_types import MAX_INT, whole
from models.commands.shared import CHECKPOINT, RESOLUTION_LEVEL, choose_device, open_trained, show


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Render a training view; returns the exit status."""
    choose_device(arguments, conf)
    view = arguments.values.image
    level = arguments.values.resolution_level or conf.train.validate_resolution_level
    experiment = open_trained(arguments, conf, view)  # before Jittor, which the next import loads
    from models.evaluation.validation import validate_image

    return show(experiment, lambda context: validate_image(context, view, level))


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
            help="validate_image: index of the photograph (default: 0)",
        ),
        RESOLUTION_LEVEL,
    ),
    needs_checkpoint=True,
    is_shared=True,
)
