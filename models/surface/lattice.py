"""Cells and corners of a cubic lattice as arrays: halving, and cells with values of both signs.

A lattice of K cells per axis has K + 1 values per axis. Halved, it has 2 K cells; the parent cell i contains the cells
2 i and 2 i + 1, and touches the 27 points of `parents`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

AXES = (0, 1, 2)
BOTH_SIGNS = 3  # both bits of `_signs`
# To the 26 neighbours of a point, one of each opposite pair. Some direction is within 28 degrees of any gradient, so
# that the largest difference is at least 0.88 of its norm.
DIRECTIONS = tuple(step for step in itertools.product((-1, 0, 1), repeat=3) if step > (0, 0, 0))
Pair = Callable[[np.ndarray, np.ndarray], np.ndarray]


def along_axes(values: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply `change`, which acts on the first axis, to each axis in turn."""
    for axis in AXES:
        values = change(values.swapaxes(0, axis)).swapaxes(0, axis)
    return values


def halved(values: np.ndarray) -> np.ndarray:
    """Values [K + 1]^3 interpolated linearly on the lattice of half the spacing, [2 K + 1]^3.

    If all corners of a cell have one sign, so have all interpolated values in it.
    """

    def finer(there: np.ndarray) -> np.ndarray:
        found = np.empty((2 * len(there) - 1, *there.shape[1:]), there.dtype)
        found[::2], found[1::2] = there, 0.5 * (there[1:] + there[:-1])
        return found

    return along_axes(values, finer)


def halved_marks(known: np.ndarray) -> np.ndarray:
    """Marks [K + 1]^3 of points on the lattice of half the spacing; new points are unmarked."""
    finer = np.zeros([2 * count - 1 for count in known.shape], bool)
    finer[::2, ::2, ::2] = known
    return finer


def corners(values: np.ndarray, pair: Pair) -> np.ndarray:
    """Reduce each cell's eight corners by `pair`: [K + 1]^3 -> [K]^3."""
    return along_axes(values, lambda there: pair(there[1:], there[:-1]))


def parents(values: np.ndarray, pair: Pair) -> np.ndarray:
    """Reduce the 27 points of each parent cell by `pair`: [2 K + 1]^3 -> [K]^3."""
    return along_axes(values, lambda there: pair(pair(there[:-1:2], there[1::2]), there[2::2]))


def mixed_corners(values: np.ndarray) -> np.ndarray:
    """The cells [K]^3 with corners of both signs."""
    return corners(_signs(values), np.bitwise_or) == BOTH_SIGNS


def mixed_parents(values: np.ndarray) -> np.ndarray:
    """The parent cells [K]^3 with values of both signs among their 27 points."""
    return parents(_signs(values), np.bitwise_or) == BOTH_SIGNS


def _signs(values: np.ndarray) -> np.ndarray:
    """A bit for each sign, uint8: 1 for values that are not negative, 2 for negative ones."""
    return (values < 0) + np.uint8(1)


def points_of_parents(cells: np.ndarray) -> np.ndarray:
    """The points [2 K + 1]^3 of marked parent cells [K]^3."""

    def touched(there: np.ndarray) -> np.ndarray:
        found = np.zeros((2 * len(there) + 1, *there.shape[1:]), bool)
        found[:-1:2], found[1::2] = there, there
        found[2::2] |= there
        return found

    return along_axes(cells, touched)


def among_neighbours(cells: np.ndarray, pair: Pair) -> np.ndarray:
    """Reduce each cell and its existing neighbours, up to 26, by `pair`: [K]^3 -> [K]^3."""

    def spread(there: np.ndarray) -> np.ndarray:
        found = there.copy()
        found[1:] = pair(found[1:], there[:-1])
        found[:-1] = pair(found[:-1], there[1:])
        return found

    return along_axes(cells, spread)


def steepest(values: np.ndarray, known: np.ndarray, spacing: np.ndarray) -> float:
    """The steepest slope between two neighbours, along any of DIRECTIONS, that are both known; 0 for none."""
    shape = [count + 2 for count in values.shape]  # a rim of unknown points: no neighbour is looked for beyond it
    padded = np.full(shape, np.nan)  # unknown points, which fmax ignores
    padded[1:-1, 1:-1, 1:-1][known] = values[known]
    padded = padded.reshape(-1)
    places = np.flatnonzero(~np.isnan(padded))
    here, square = padded[places], 0.0
    for step in DIRECTIONS:
        there = places + int(np.dot(step, (shape[1] * shape[2], shape[2], 1)))
        most = float(np.fmax.reduce(np.square(padded[there] - here), initial=0.0))
        square = max(square, most / float(np.sum(np.square(step * spacing))))
    return float(np.sqrt(square))
