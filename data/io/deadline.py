"""When a command is to end: a moment after which work ends early or is left out, and how slow the machine is now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from pathlib import Path

_END: ContextVar[Callable[[], float] | None] = ContextVar("end", default=None)
SCHEDULED = Path("/proc/thread-self/schedstat")


@contextmanager
def ends_at(moment: Callable[[], float] | None) -> Iterator[None]:
    """Work of the body that can end early does so at `moment()` of time.perf_counter(); None: it does not."""
    token = _END.set(moment)
    try:
        yield
    finally:
        _END.reset(token)


def seconds_left() -> float:
    """The seconds until that moment, negative after it; infinite without one."""
    end = _END.get()
    return inf if end is None else end() - time.perf_counter()


def scheduled() -> tuple[float, float]:
    """The time for which this thread ran, and for which it waited for a processor; zeros where Linux does not tell."""
    try:
        ran, waited, _ = SCHEDULED.read_text().split()
        return float(ran), float(waited)
    except (OSError, ValueError):
        return 0.0, 0.0


def slowdown(since: tuple[float, float] = (0.0, 0.0)) -> float:
    """How many times as long work of this thread took, since `scheduled` was `since`, as without other processes."""
    ran, waited = (now - then for now, then in zip(scheduled(), since, strict=True))
    return 1.0 + waited / ran if ran > 0 else 1.0
