"""The time of a command: of each of its phases, until it is to end, and how slow the machine is now."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path

_END: ContextVar[Callable[[], float] | None] = ContextVar("end", default=None)
SCHEDULED = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True)
class Spent:
    """Time in seconds."""

    wall: float = 0.0
    processor: float = 0.0  # of this process and of its children that have ended

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.wall + other.wall, self.processor + other.processor)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.wall - other.wall, self.processor - other.processor)


Times = Mapping[str, Spent]


@dataclass
class _Clock:
    """The times so far, and the phases that are open, the innermost one last."""

    times: dict[str, Spent] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    since: Spent = Spent()

    def settle(self) -> None:
        """Add the time since the last call to the innermost phase."""
        moment = now()
        if self.opened:
            name = self.opened[-1]
            self.times[name] = self.times.get(name, Spent()) + (moment - self.since)
        self.since = moment


_CLOCK: ContextVar[_Clock | None] = ContextVar("clock", default=None)


@contextmanager
def recorded() -> Iterator[Times]:
    """The times of the phases of the body, in the order of their first ends; complete after each phase."""
    clock = _Clock()
    token = _CLOCK.set(clock)
    try:
        yield clock.times
    finally:
        _CLOCK.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Count the time of the body for the phase `name`; does nothing outside `recorded`."""
    clock = _CLOCK.get()
    if clock is None:
        yield
        return
    clock.settle()
    clock.opened.append(name)
    try:
        yield
    finally:
        clock.settle()
        clock.opened.pop()


def so_far() -> Times:
    """The times of the phases that ended within `recorded`; none outside."""
    clock = _CLOCK.get()
    return {} if clock is None else clock.times


def added(one: Times, other: Times) -> dict[str, Spent]:
    """The times of two commands, phase by phase."""
    return {name: one.get(name, Spent()) + other.get(name, Spent()) for name in {**one, **other}}


def line(times: Times) -> str:
    """The wall-clock times on one line, in seconds; without phases that round to 0."""
    seconds = {name: round(spent.wall) for name, spent in times.items()}
    words = ", ".join(f"{name} {spent}" for name, spent in seconds.items() if spent)
    return f"time: {sum(spent.wall for spent in times.values()):.0f} s" + (f" ({words})" if words else "")


def as_values(times: Times) -> dict[str, dict[str, float]]:
    """The times as a JSON value, rounded to milliseconds."""
    return {name: {key: round(value, 3) for key, value in asdict(spent).items()} for name, spent in times.items()}


def now() -> Spent:
    """The clocks of this process; differences are times."""
    used = os.times()
    return Spent(time.perf_counter(), used.user + used.system + used.children_user + used.children_system)


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
