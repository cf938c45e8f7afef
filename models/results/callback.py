"""The interface of callbacks of a training, such as the report and the viewer.

Whatever a method raises, the training goes on: each method that fails is reported once, with its name and line. Only
KeyboardInterrupt ends the training, as Ctrl-C does, with a checkpoint.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import UserError, is_allocation_failure, reason

if TYPE_CHECKING:  # a callback is written without loading Jittor
    from models.mesh.mesh import Surface
    from models.results.context import EvalContext
    from models.results.experiment import Experiment
    from models.results.image_metrics import ValidationImage

# States of a training.
TRAINING, FINISHED, STOPPED = "training", "finished", "stopped"


class Callback:
    """Called by the training loop; the methods do nothing by default, must be fast, and may not train."""

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


class Callbacks:
    """The callbacks of a training; every call of one of their methods is made here."""

    def __init__(
        self, callbacks: Sequence[Callback], warn: Callable[[str], None], interrupt: Callable[[], None] | None = None
    ) -> None:
        """`interrupt` is called after a KeyboardInterrupt; without it, that is raised."""
        self._callbacks, self._warn, self._interrupt = callbacks, warn, interrupt
        self._failed: set[tuple[int, str]] = set()

    def begin(self, experiment: Experiment) -> None:
        """Call `begin` of each callback; raises its UserError."""
        self._call("begin", "before the training", (experiment,))

    def notify(self, step: int, method: str, *arguments: Any) -> None:
        """Call this method of each callback."""
        self._call(method, f"step {step}", arguments)

    def _call(self, method: str, when: str, arguments: tuple[Any, ...]) -> None:
        for index, callback in enumerate(self._callbacks):
            try:
                getattr(callback, method)(*arguments)
            except KeyboardInterrupt:
                if self._interrupt is None:
                    raise
                self._interrupt()
            except BaseException as error:  # noqa: BLE001 (code of the user, which may also call sys.exit)
                if method == "begin" and isinstance(error, UserError):
                    raise
                if is_allocation_failure(error):
                    from models.machine import memory  # imports Jittor

                    memory.release_after_failure(error)
                if (index, method) not in self._failed:
                    self._failed.add((index, method))
                    self._warn(f"{when}: {_sentence(callback, method, error)}")


def _sentence(callback: Callback, method: str, error: BaseException) -> str:
    """Which method failed, at which line, and why."""
    places = traceback.extract_tb(error.__traceback__)[1:2]  # the method, below its call
    where = "".join(f" ({Path(place.filename).name}:{place.lineno})" for place in places)
    verb = "could not be written" if isinstance(error, UserError | OSError) else "failed"
    name, kind = getattr(callback, "name", Callback.name), type(error).__name__
    text = f"{name} {verb}; the training continues: {type(callback).__qualname__}.{method}{where}: {kind}"
    return text if reason(error) == kind else f"{text}: {reason(error)}"
