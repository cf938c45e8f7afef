"""The layout of a multiresolution grid and of the small network behind it, as conf, reference and native text read it.

Knows no Jittor. The grid is that of Instant-NGP (arXiv 2201.05989, section 3): levels of cells over the cube [-1, 1]^3,
two numbers at each corner of a cell; a level whose corners fit into 2^T rows of the table has a row for each; elsewhere
corners share rows by a hash.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from models.ops.sizes import padded

FEATURES = 2  # numbers at a corner: what a 64-bit load fetches, and what the paper found best
POINT = 3  # coordinates, which the network reads in front of the features


@dataclass(frozen=True)
class GridSizes:
    """A grid of L levels, and the network that reads (point, features of the active levels).

    A point beyond the cube has the features of the nearest point in it, and no slope along the axes it is beyond.
    """

    resolutions: tuple[int, ...]  # cells along an edge of the cube, level by level
    entries: tuple[int, ...]  # rows of the table, likewise; levels follow each other in it
    active: int  # the first levels, which are read; the features of the others are zero and cost nothing
    widths: tuple[
        int, ...
    ] = ()  # inputs and outputs of each linear layer, one pair after the other; () without network
    keeps: int = 0  # 1: the forward pass records what its gradient needs

    @property
    def levels(self) -> int:
        """L."""
        return len(self.resolutions)

    @property
    def rows(self) -> int:
        """Rows of the whole table."""
        return sum(self.entries)

    @property
    def inputs(self) -> int:
        """Channels that the network reads."""
        return POINT + FEATURES * self.active

    @property
    def recorded(self) -> int:
        """Numbers kept per point between forward and backward.

        The outputs of the hidden layers, whole vectors of them; at each active level the features, their slopes along
        three axes, and the slope of the distance along them.
        """
        return sum(map(padded, self.widths[1:-2:2])) + self.active * FEATURES * (1 + POINT + 1)

    def is_dense(self, level: int) -> bool:
        """Whether each corner of a level has its own row."""
        return self.entries[level] == (self.resolutions[level] + 1) ** 3

    def start(self, level: int) -> int:
        """The first row of a level."""
        return sum(self.entries[:level])


def grid_sizes(levels: int, coarsest: int, finest: int, log2_rows: int, active: int | None = None) -> GridSizes:
    """A grid whose resolutions grow by one factor from `coarsest` to `finest`, at most 2^log2_rows rows a level."""
    growth = (finest / coarsest) ** (1.0 / max(1, levels - 1))
    resolutions = tuple(math.floor(coarsest * growth**level + 0.5) for level in range(levels))
    entries = tuple(min((resolution + 1) ** 3, 2**log2_rows) for resolution in resolutions)
    return GridSizes(resolutions, entries, levels if active is None else active)
