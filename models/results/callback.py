"""The interface of callbacks of a training, such as the report and the viewer. Their errors do not stop the
training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a callback is written without loading Jittor
    from models.mesh.mesh import Surface
    from models.results.context import EvalContext
    from models.results.experiment import Experiment
    from models.results.image_metrics import ValidationImage

# States of a training.
TRAINING, FINISHED, STOPPED = "training", "finished", "stopped"


class Callback:
    """Called by the training loop; the methods do nothing by default and must be fast."""

    name = "a callback"  # name in the warning if it fails

    def begin(self, experiment: Experiment) -> None:
        """Before the training, when its inputs were checked. A UserError that this raises prevents it."""

    def scalars(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """At a report: the logged scalars by name; losses times their weights, which add up to `Loss/loss`."""

    def picture(self, step: int, picture: ValidationImage) -> None:
        """At a validation: an image and its metrics."""

    def mesh(self, step: int, surface: Surface) -> None:
        """At a mesh, which is in the working frame."""

    def after_step(self, context: Callable[[], EvalContext]) -> None:
        """After every step; `context` creates the EvalContext if it is needed."""

    def write(self, step: int, seconds: float, state: str) -> None:
        """After reports, validations and meshes, and at the end; `state`: TRAINING, FINISHED or STOPPED."""
