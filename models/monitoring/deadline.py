"""A moment at which a training ends before its last step, for commands that must end in a given time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LEAST_STEPS = 200  # fewer steps give no usable result

_END: ContextVar[tuple[float, int] | None] = ContextVar("end", default=None)


@contextmanager
def training_ends_at(moment: float | None, least: int = LEAST_STEPS) -> Iterator[None]:
    """End trainings of the body with their next step after `moment` of time.perf_counter(), but not before step
    `least`; None: at the last step.
    """
    token = _END.set(None if moment is None else (moment, least))
    try:
        yield
    finally:
        _END.reset(token)


def is_over(step: int = 0) -> bool:
    """Whether that moment has passed, and the step after `step` may be the last one."""
    end = _END.get()
    return end is not None and time.perf_counter() >= end[0] and step + 1 >= end[1]
