"""Progress bars that end no work: where the terminal goes, the bar goes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from tqdm import tqdm

from data.errors import one_line

# What a stream that is closed, full or gone raises.
GONE = (OSError, ValueError)


class Bar(tqdm):
    """tqdm whose texts are one line that prints, and which vanishes where its terminal does."""

    def __init__(self, iterable: Iterable[Any] | None = None, **options: Any) -> None:
        """`options` are tqdm's."""
        if options.get("file") is None and sys.stderr is None:
            options["disable"] = True
        super().__init__(iterable, **options)

    def __str__(self) -> str:
        return one_line(super().__str__())

    @staticmethod
    def status_printer(file: Any) -> Callable[[str], None]:
        """What draws on `file`; where it cannot be written to, nothing does."""
        try:
            return tqdm.status_printer(file)
        except GONE:
            return lambda text: None

    def display(self, *arguments: Any, **options: Any) -> bool | None:
        """Draw; where that fails, never again."""
        try:
            return super().display(*arguments, **options)
        except GONE:
            self.disable = True
            return None

    def clear(self, *arguments: Any, **options: Any) -> None:
        """Make room for a line of text."""
        try:
            super().clear(*arguments, **options)
        except GONE:
            self.disable = True

    def close(self) -> None:
        """Finish the bar's line, if there is still a terminal; tqdm itself does not forget a disabled bar."""
        with contextlib.suppress(*GONE):
            super().close()
        getattr(self, "_instances", set()).discard(self)
