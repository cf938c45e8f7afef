"""Finds the cells in which a density is negligible; each update evaluates it at another point of each cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from models.estimators.occupancy import OccupancyGrid

CELLS_AT_ONCE = 1 << 16  # cells evaluated per update, which takes as long as a few steps
PATIENCE = 4  # consecutive updates with low opacity after which a cell counts as empty
# A quasirandom sequence of points that fills a cell evenly
# (Roberts 2018, "The unreasonable effectiveness of quasirandom sequences").
POINT_STRIDE = 1.0 / 1.22074408460575947536 ** np.arange(1, 4)


class EmptyCells:
    """Counts for each cell how often in a row it was found empty."""

    def __init__(self, grid: OccupancyGrid, threshold: float) -> None:
        """`threshold`: a cell with a lower opacity is empty."""
        self.grid, self.threshold = grid, threshold
        self.count = 0
        self.forget()

    def forget(self) -> None:
        """Reset the counts."""
        self.empty = np.zeros(self.grid.hull.shape, np.uint8)

    def update(self, opacity: Callable[[np.ndarray, float], np.ndarray]) -> None:
        """Evaluate some cells; opacity(points [P, 3], edge length) returns the opacities of their cells [P]."""
        hull = np.argwhere(self.grid.hull)
        turns = max(1, -(-len(hull) // CELLS_AT_ONCE))
        some = hull[self.count % turns :: turns]
        place = (0.5 + (self.count // turns) * POINT_STRIDE) % 1.0
        points = ((some + place) * self.grid.side - 1).astype(np.float32)
        at = tuple(some.T)
        is_seen = opacity(points, self.grid.side) > self.threshold
        self.empty[at] = np.where(is_seen, 0, np.minimum(self.empty[at] + 1, PATIENCE))
        self.count += 1
        self.grid.update((self.empty >= PATIENCE)[self.grid.hull], np.zeros(len(hull), bool))

    def buffers(self) -> dict[str, np.ndarray]:
        """The arrays that a resume needs."""
        return {"empty_looks": self.empty.copy(), "looks": np.array([self.count])}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`."""
        self.empty = buffers["empty_looks"].astype(np.uint8)
        self.count = int(buffers["looks"][0])
