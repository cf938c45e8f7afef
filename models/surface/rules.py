"""Where a surface may be: which cells of a lattice are worth a closer look, and how that is checked.

A signed distance has a bound: it changes by no more than its slope times the way. A cell whose corners are, in the
mean, farther from zero than a surface through the cell allows has none in it. The slope is measured, taken with a
margin, and compared with all that is evaluated later; where it was too small, the rule is widened.

A density, or a distance that is cut off, has no bound. A cell is looked at where values change sign in it or in one of
its 26 neighbours, or come close to zero by the measure of how they vary there. What neither rule foresees is followed:
into every cell and every block that the surface leaves through (models.surface.block, models.surface.sparse).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from models.surface.lattice import among_neighbours, corners, mixed_corners

# On the steepest slope that was measured: 1.13 for its direction (lattice.DIRECTIONS), the rest for what was not seen.
MARGIN = 1.25
# Of the range of values in a cell, or on the coarse lattice in a cell and its neighbours: what is nearer to zero than
# that many times may cross it. Of a NeRF that was trained for 1000 steps, whose density is rough, all 723 pieces are
# found with these numbers, in 4.7 % of the queries; with 1/2 and 1/2, in 2.4 %, 46 of the smallest are not.
NEAR, NEAR_COARSE = 3.0, 1.0
# Cells of the coarsest lattice per axis, at the least. Without a bound what is smaller than such a cell may be missed.
COARSEST_BOUNDED = 32
COARSEST_UNBOUNDED = 100


def _same(values: np.ndarray) -> np.ndarray:
    return values


class Rule(Protocol):
    """Which cells are refined; `values` are zero on the surface, negative inside."""

    def may_cross(self, values: np.ndarray, spacing: np.ndarray, coarse: bool) -> np.ndarray:
        """The cells [K]^3 through which the surface may go; values [K + 1]^3, `spacing` [3] apart.

        coarse: these are the values of the coarse lattice, which nothing has been excluded by so far.
        """

    def widened(self, slope: float) -> Rule:
        """The rule that holds where a slope was seen; this one where it allows for that."""

    def text(self) -> str:
        """The rule in words, for the log."""


@dataclass(frozen=True)
class Bounded:
    """Of a signed distance."""

    slope: float  # no two values differ by more than this times their distance

    def may_cross(self, values: np.ndarray, spacing: np.ndarray, coarse: bool) -> np.ndarray:
        """Where the corners' mean distance from zero is not above the slope times their mean distance from a point.

        That mean is convex, so that no point of the cell has a larger one than its corners, which all have the same.
        """
        del coarse
        cube = np.stack(np.meshgrid(*[(0.0, step) for step in spacing], indexing="ij"), axis=-1)
        reach = float(np.linalg.norm(cube, axis=-1).mean())
        return corners(np.abs(values), np.add) / 8.0 <= self.slope * reach

    def widened(self, slope: float) -> Bounded:
        """With a margin again."""
        return self if slope <= self.slope else replace(self, slope=MARGIN * slope)

    def text(self) -> str:
        """The bound."""
        return f"a slope of at most {self.slope:.3g}"


@dataclass(frozen=True)
class Unbounded:
    """Of everything else."""

    level: float  # of the field, where the values are zero
    evened: Callable[[np.ndarray], np.ndarray] = _same

    def may_cross(self, values: np.ndarray, spacing: np.ndarray, coarse: bool) -> np.ndarray:
        """Where signs differ, or values come near to zero by the measure of their range; coarse cells look around."""
        del spacing
        even = self.evened(values + self.level) - self.evened(np.array(self.level))
        highest, lowest, crossing = corners(even, np.maximum), corners(even, np.minimum), mixed_corners(values)
        near = NEAR
        if coarse:
            near = NEAR_COARSE
            highest, lowest = among_neighbours(highest, np.maximum), among_neighbours(lowest, np.minimum)
            crossing = among_neighbours(crossing, np.logical_or)
        return crossing | (corners(np.abs(even), np.minimum) <= near * (highest - lowest))

    def widened(self, slope: float) -> Unbounded:
        """No slope is too steep."""
        del slope
        return self

    def text(self) -> str:
        """The rule."""
        return "near sign changes"
