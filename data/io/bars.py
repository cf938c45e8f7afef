"""Progress bars: texts of one printable line; a bar without a terminal is disabled."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

from data.errors import one_line
from data.io.streams import is_terminal, is_visible

LEAST_SECONDS = 2.0  # longer work has a bar


def progress(items: Iterable[Any], name: str) -> Iterable[Any]:
    """`items` with a progress bar, which only a terminal shows, and only for work longer than LEAST_SECONDS."""
    return Bar(items, desc=name, disable=not is_terminal(), delay=LEAST_SECONDS, leave=False, dynamic_ncols=True)


class Bar(tqdm):
    """tqdm with texts of one printable line."""

    def __init__(self, iterable: Iterable[Any] | None = None, **options: Any) -> None:
        """`options` are tqdm's."""
        if options.get("file") is None and (sys.stderr is None or not is_visible()):
            options["disable"] = True
        super().__init__(iterable, **options)

    def __str__(self) -> str:
        return one_line(super().__str__())

    def leave_out(self) -> None:
        """Leave the time and the units since the last drawing out of the rate, and so out of the remaining time."""
        if not self.disable:
            self.unpause()
            self.last_print_n = self.n
