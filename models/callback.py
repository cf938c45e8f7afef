"""The interface of what follows a training, such as the report and the viewer. None of it may stop the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from models.evaluation.validation import ValidationImage
from models.results.context import EvalContext
from models.surface.mesh import Surface

# States of a training.
TRAINING, FINISHED, STOPPED = "training", "finished", "stopped"


class Callback:
    """Called by the training loop; every method does nothing by default, and each must be short."""

    name = "a callback"  # for the warning where it fails

    def scalars(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """At a report: the logged scalars by name."""

    def picture(self, step: int, picture: ValidationImage) -> None:
        """At a validation: an image and its metrics."""

    def mesh(self, step: int, surface: Surface) -> None:
        """At a mesh: it is in the working frame."""

    def after_step(self, context: Callable[[], EvalContext]) -> None:
        """After every step; `context` makes the EvalContext, where one is needed."""

    def write(self, step: int, seconds: float, state: str) -> None:
        """After reports, validations and meshes, and at the end; `state`: TRAINING, FINISHED or STOPPED."""
