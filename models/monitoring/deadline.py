"""A moment at which a training ends before its last step, for commands that must end in a given time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_END: ContextVar[float | None] = ContextVar("end", default=None)


@contextmanager
def training_ends_at(moment: float | None) -> Iterator[None]:
    """End trainings of the body with their next step after `moment` of time.perf_counter(); None: at the last step."""
    token = _END.set(moment)
    try:
        yield
    finally:
        _END.reset(token)


def is_over() -> bool:
    """Whether that moment has passed."""
    end = _END.get()
    return end is not None and time.perf_counter() >= end
