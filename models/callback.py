"""What follows a training: the report, the viewer. None of it may stop the training, and each keeps its time short."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from models.evaluation.validation import ValidationImage
from models.results.context import EvalContext
from models.surface.mesh import Surface

# How a training stands, for those who look.
TRAINING, FINISHED, STOPPED = "training", "finished", "stopped"


class Callback:
    """Is told what a training does; does nothing about it by itself."""

    name = "a follower"  # for the warning where it fails

    def scalars(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """The numbers of a report."""

    def picture(self, step: int, picture: ValidationImage) -> None:
        """A view was rendered."""

    def mesh(self, step: int, surface: Surface) -> None:
        """A mesh was made, in the working frame."""

    def after_step(self, context: Callable[[], EvalContext]) -> None:
        """Called after every step."""

    def write(self, step: int, seconds: float, state: str) -> None:
        """Called after reports, pictures and meshes, and when the training ends."""
