"""`--mode interpolate_I_J`."""

from __future__ import annotations

from data.errors import UserError
from models.commands.command import Arguments, Command, ExperimentConfig, Mode
from models.commands.flags import CHECKPOINT, LEVEL, is_index
from models.commands.shared import with_model
from models.results.trained import TrainedModel


def read(text: str) -> Mode | None:
    """The mode with its two view indices; raises UserError if they are invalid."""
    name, *views = text.split("_")
    if name != "interpolate":
        return None
    if len(views) != 2 or not all(is_index(view) for view in views):
        raise UserError(
            f"--mode {text}: write it as interpolate_I_J with two photograph numbers, such as interpolate_0_5"
        )
    return Mode(name, (int(views[0]), int(views[1])))


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the video; returns the exit status."""
    from data.scenes.scene import require_view

    first, second = arguments.mode.views

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
    read=read,
    flags=(CHECKPOINT, LEVEL),
    needs_checkpoint=True,
)
