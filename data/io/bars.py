"""Progress bars whose failures do not end the work: a bar without a terminal is disabled."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any

from tqdm import tqdm

from data.errors import one_line
from data.io.streams import is_shown, is_watched

A_MOMENT = 2.0  # seconds; longer work has a bar
# Exceptions of a stream that is closed, full or disconnected.
GONE = (OSError, ValueError)


def shown(items: Iterable[Any], name: str) -> Iterable[Any]:
    """`items` with a progress bar, which only a terminal shows, and only of work that takes longer than A_MOMENT."""
    return Bar(items, desc=name, disable=not is_watched(), delay=A_MOMENT, leave=False, dynamic_ncols=True)


class Bar(tqdm):
    """tqdm with texts of one printable line; it is disabled when its terminal fails."""

    def __init__(self, iterable: Iterable[Any] | None = None, **options: Any) -> None:
        """`options` are tqdm's."""
        if options.get("file") is None and (sys.stderr is None or not is_shown()):
            options["disable"] = True
        super().__init__(iterable, **options)

    def __str__(self) -> str:
        return one_line(super().__str__())

    @staticmethod
    def status_printer(file: Any) -> Callable[[str], None]:
        """The function that draws on `file`; one that does nothing if `file` cannot be written to."""
        try:
            return tqdm.status_printer(file)
        except GONE:
            return lambda text: None

    def display(self, *arguments: Any, **options: Any) -> bool | None:
        """Draw the bar; a failure disables it."""
        try:
            return super().display(*arguments, **options)
        except GONE:
            self.disable = True
            return None

    def clear(self, *arguments: Any, **options: Any) -> None:
        """Clear the bar for a line of text."""
        try:
            super().clear(*arguments, **options)
        except GONE:
            self.disable = True

    def leave_out(self) -> None:
        """Leave the time and the units since the last drawing out of the rate, and so out of the remaining time."""
        if not self.disable:
            self.unpause()
            self.last_print_n = self.n

    def close(self) -> None:
        """Finish the bar's line; also remove a disabled bar from tqdm's list, which tqdm itself does not."""
        with contextlib.suppress(*GONE):
            super().close()
        getattr(self, "_instances", set()).discard(self)


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
