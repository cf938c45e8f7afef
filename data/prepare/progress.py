"""A progress bar for each step of the preparation."""

from __future__ import annotations

from data.io import bars
from data.io.streams import is_watched


class Bar(bars.Bar):
    """A bar on stderr, shown only on a terminal."""

    def __init__(self, name: str, total: int | None, unit: str = "photo") -> None:
        super().__init__(total=total, desc=name, unit=f" {unit}", disable=not is_watched(), dynamic_ncols=True)

    def to(self, count: int) -> None:
        """Show that `count` units are done."""
        self.update(count - self.n)
