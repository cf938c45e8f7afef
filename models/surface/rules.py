"""Rules that decide which cells of a lattice may contain the surface, and their checks.

A signed distance is Lipschitz continuous: it changes by at most its gradient norm times the distance. A cell contains
no surface if the mean distance of its corners from zero is too large for that. The gradient norm is measured,
multiplied by a margin, and compared with all later values; if it was too small, the rule is widened. A density, or a
truncated distance, has no such bound. A cell is refined if the sign changes in it or in one of its 26 neighbours, or if
values are close to zero relative to their variation. Surfaces that neither rule predicts are followed into every cell
and block that they enter (models.surface.block, models.surface.sparse).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from models.surface.lattice import among_neighbours, corners, mixed_corners

# Factor on the largest measured gradient norm: 1.13 for the directions (lattice.DIRECTIONS), the rest for unmeasured
# points.
MARGIN = 1.25
# Fractions of the range of values in a cell, or on the coarse lattice in a cell and its neighbours, below which a value
# may be near a crossing. For a NeRF after 1000 steps, with a rough density, these numbers find all 723 components with
# 4.7 % of the queries; 1/2 and 1/2 miss 46 of the smallest with 2.4 %.
NEAR, NEAR_COARSE = 3.0, 1.0
# Minimum number of cells of the coarsest lattice per axis. Without a bound, components smaller than such a cell may be
# missed.
COARSEST_BOUNDED = 32
COARSEST_UNBOUNDED = 100


def _same(values: np.ndarray) -> np.ndarray:
    return values


class Rule(Protocol):
    """Decides which cells are refined; `values` are zero on the surface, negative inside."""

    def may_cross(self, values: np.ndarray, spacing: np.ndarray, coarse: bool) -> np.ndarray:
        """The cells [K]^3 that the surface may cross; values [K + 1]^3, `spacing` [3] apart.

        coarse: these are the values of the coarse lattice, where no cell has been excluded yet.
        """

    def widened(self, slope: float) -> Rule:
        """The rule after a gradient norm was found; unchanged if it already allows for it."""

    def text(self) -> str:
        """The rule as a text for the log."""


@dataclass(frozen=True)
class Bounded:
    """The rule for a signed distance."""

    slope: float  # an upper bound of the difference of two values over their distance

    def may_cross(self, values: np.ndarray, spacing: np.ndarray, coarse: bool) -> np.ndarray:
        """Cells whose corners have a mean distance from zero of at most the bound times their mean distance from a
        point.

        The mean distance from a point is convex, so its maximum in the cell is at the corners, where it is equal.
        """
        del coarse
        cube = np.stack(np.meshgrid(*[(0.0, step) for step in spacing], indexing="ij"), axis=-1)
        reach = float(np.linalg.norm(cube, axis=-1).mean())
        return corners(np.abs(values), np.add) / 8.0 <= self.slope * reach

    def widened(self, slope: float) -> Bounded:
        """The rule with a new margin."""
        return self if slope <= self.slope else replace(self, slope=MARGIN * slope)

    def text(self) -> str:
        """The bound as a text for the log."""
        return f"largest gradient norm {self.slope:.3g}"


@dataclass(frozen=True)
class Unbounded:
    """The rule for all other fields."""

    level: float  # value of the field at the surface
    evened: Callable[[np.ndarray], np.ndarray] = _same

    def may_cross(self, values: np.ndarray, spacing: np.ndarray, coarse: bool) -> np.ndarray:
        """Cells with a sign change or values close to zero relative to their range; coarse cells include their
        neighbours.
        """
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
        """The same rule, which does not depend on gradients."""
        del slope
        return self

    def text(self) -> str:
        """The rule as a text for the log."""
        return "near sign changes"
