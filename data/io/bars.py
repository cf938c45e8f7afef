"""Progress bars whose failures do not end the work: a bar without a terminal is disabled."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
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
