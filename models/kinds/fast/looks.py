"""Which cells a density leaves empty, told by looks at ever other places in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from models.rendering.occupancy import Occupancy

LOOKS = 1 << 16  # cells that are asked at a time: what a few steps cost
PATIENCE = 4  # looks in a row that find a cell empty before it counts as empty
# Where the golden ratio's sister in three dimensions leads to: places in a cell that fill it evenly, look by look
# (Roberts 2018, "The unreasonable effectiveness of quasirandom sequences").
LOOK_STRIDE = 1.0 / 1.22074408460575947536 ** np.arange(1, 4)


class Looks:
    """How often in a row each cell was found empty."""

    def __init__(self, occupancy: Occupancy, threshold: float) -> None:
        """`threshold`: a cell whose opacity is below it is empty."""
        self.occupancy, self.threshold = occupancy, threshold
        self.count = 0
        self.forget()

    def forget(self) -> None:
        """No cell was found empty."""
        self.empty = np.zeros(self.occupancy.hull.shape, np.uint8)

    def renew(self, opacity: Callable[[np.ndarray, float], np.ndarray]) -> None:
        """Look at some cells; `opacity` says that of points [P, 3] in cells of a side: [P]."""
        hull = np.argwhere(self.occupancy.hull)
        turns = max(1, -(-len(hull) // LOOKS))
        some = hull[self.count % turns :: turns]
        place = (0.5 + (self.count // turns) * LOOK_STRIDE) % 1.0
        points = ((some + place) * self.occupancy.side - 1).astype(np.float32)
        at = tuple(some.T)
        is_seen = opacity(points, self.occupancy.side) > self.threshold
        self.empty[at] = np.where(is_seen, 0, np.minimum(self.empty[at] + 1, PATIENCE))
        self.count += 1
        self.occupancy.renew((self.empty >= PATIENCE)[self.occupancy.hull], np.zeros(len(hull), bool))

    def buffers(self) -> dict[str, np.ndarray]:
        """What a resume needs."""
        return {"empty_looks": self.empty.copy(), "looks": np.array([self.count])}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Take them back."""
        self.empty = buffers["empty_looks"].astype(np.uint8)
        self.count = int(buffers["looks"][0])
