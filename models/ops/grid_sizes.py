"""The layout of a multiresolution grid and its network, for conf, reference and native source. Does not import Jittor.

The grid is that of Instant-NGP (arXiv 2201.05989, section 3): levels of cells over the cube [-1, 1]^3, with two numbers
at each corner. If the corners of a level fit into 2^T rows, each has a separate row; otherwise corners share rows by a
hash.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from models.ops.sizes import padded

FEATURES = 2  # numbers per corner: one 64-bit load, and the best choice of the paper
POINT = 3  # coordinates, which precede the features in the network's input


@dataclass(frozen=True)
class GridSizes:
    """A grid of L levels, and a network of (point, features of the active levels).

    A point outside the cube has the features of the nearest point in it, and no derivative along the clamped axes.
    """

    resolutions: tuple[int, ...]  # cells along an edge of the cube, per level
    entries: tuple[int, ...]  # table rows per level; levels are consecutive
    active: int  # number of active levels; the features of the others are zero and are not computed
    widths: tuple[int, ...] = ()  # inputs and outputs of each linear layer; () without a network
    keeps: int = 0  # 1: the forward pass stores what its gradient needs

    @property
    def levels(self) -> int:
        """The number of levels L."""
        return len(self.resolutions)

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return sum(self.entries)

    @property
    def inputs(self) -> int:
        """Input channels of the network."""
        return POINT + FEATURES * self.active

    @property
    def recorded(self) -> int:
        """Numbers stored per point between forward and backward pass.

        The outputs of the hidden layers, in whole vectors; per active level the features, their derivatives along three
        axes, and the derivative of the distance with respect to them.
        """
        return sum(map(padded, self.widths[1:-2:2])) + self.active * FEATURES * (1 + POINT + 1)

    def is_dense(self, level: int) -> bool:
        """Whether each corner of a level has its own row."""
        return self.entries[level] == (self.resolutions[level] + 1) ** 3

    def start(self, level: int) -> int:
        """The first row of a level."""
        return sum(self.entries[:level])


def grid_sizes(levels: int, coarsest: int, finest: int, log2_rows: int, active: int | None = None) -> GridSizes:
    """A grid with geometrically increasing resolutions from `coarsest` to `finest`, at most 2^log2_rows rows per
    level.
    """
    growth = (finest / coarsest) ** (1.0 / max(1, levels - 1))
    resolutions = tuple(math.floor(coarsest * growth**level + 0.5) for level in range(levels))
    entries = tuple(min((resolution + 1) ** 3, 2**log2_rows) for resolution in resolutions)
    return GridSizes(resolutions, entries, levels if active is None else active)
