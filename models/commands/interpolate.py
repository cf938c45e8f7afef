"""`--mode interpolate_I_J`."""

from __future__ import annotations

from data.errors import UserError
from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.flags import CHECKPOINT, LEVEL, is_index
from models.commands.shared import with_model
from models.results.trained import TrainedModel


def is_named(text: str) -> bool:
    """Whether it names this mode; raises UserError without two view indices."""
    name, *views = text.split("_")
    if name == "interpolate" and (len(views) != 2 or not all(is_index(view) for view in views)):
        raise UserError(
            f"--mode {text}: write it as interpolate_I_J with two photograph numbers, such as interpolate_0_5"
        )
    return name == "interpolate"


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the video; returns the exit status."""
    from data.scenes.scene_checks import require_view

    first, second = map(int, arguments.mode.split("_")[1:])

    def write(model: TrainedModel) -> None:
        for view in (first, second):
            require_view(model.views, view)
        context = model.context
        from models.results.videos import interpolate

        interpolate(context, first, second, arguments.values.resolution_level)

    return with_model(arguments, conf, write)


COMMAND = Command(
    name="interpolate",
    shown="interpolate_I_J",
    line="write a video from photograph I to photograph J and back, such as interpolate_0_5",
    run=run,
    is_named=is_named,
    flags=(CHECKPOINT, LEVEL),
    needs_checkpoint=True,
)
