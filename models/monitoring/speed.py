"""The speed of a training."""

from __future__ import annotations

import time


class Speed:
    """Batch entries per second between reports."""

    def __init__(self) -> None:
        self._rays, self._time = 0, time.perf_counter()

    def count(self, rays: int) -> None:
        """Count the entries of a step."""
        self._rays += rays

    def since_last(self) -> float:
        """Entries per second since the last call."""
        now = time.perf_counter()
        found = self._rays / (now - self._time)
        self._rays, self._time = 0, now
        return found
