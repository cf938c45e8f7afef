"""Grids of cubic cells over the cube [-1, 1]^3, and cubes that are subdivided."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import distance_transform_edt, map_coordinates


def cell_centres(count: int, half: float = 1.0) -> np.ndarray:
    """Centres [count^3, 3] of the cells of the cube [-half, half]^3, ordered by x, y, z; `count` per axis."""
    axis = _centres_along(count) * half
    return np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)


def squared_radii(count: int) -> np.ndarray:
    """Squared distances [count, count, count] of the cell centres from the origin."""
    squares = np.square(_centres_along(count))
    return squares[:, None, None] + squares[None, :, None] + squares


def octants(centres: np.ndarray, side: float) -> np.ndarray:
    """Centres [8 N, 3] of the eight equal parts of cubes [N, 3] with this side."""
    offsets = np.stack(np.meshgrid(*[(-0.25, 0.25)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    return (centres[:, None] + offsets * side).reshape(-1, 3)


def signed_distances(is_inside: np.ndarray, side: float) -> np.ndarray:
    """Signed distances from the faces between inner and outer cells, at the cell centres.

    `is_inside`: bool [N, N, N]. A cell next to a face is half a side away.
    """
    outside, inside = (distance_transform_edt(part, sampling=side) for part in (~is_inside, is_inside))
    return np.where(is_inside, 0.5 * side - inside, outside - 0.5 * side)


def between_centres(values: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Values [P] at points [P, 3], linear between those of the cell centres, [N, N, N] over the cube [-1, 1]^3."""
    return map_coordinates(values, (points.T + 1.0) * (0.5 * len(values)) - 0.5, order=1, mode="nearest")


def any_in_blocks(cells: np.ndarray) -> np.ndarray:
    """Whether any cell of each block of 2x2x2 cells is true: bool [N, N, N] to [M, M, M] with M = ceil(N / 2)."""
    even = np.pad(cells, (0, len(cells) % 2))
    return even.reshape((len(even) // 2, 2) * 3).any(axis=(1, 3, 5))


def children(values: np.ndarray) -> np.ndarray:
    """Values of cells, or of blocks of 2x2x2 cells, copied to their eight parts: [M, M, M] to [2 M, 2 M, 2 M]."""
    for axis in range(3):
        values = values.repeat(2, axis=axis)
    return values


def _centres_along(count: int) -> np.ndarray:
    """The coordinates [count] of the cell centres along an axis of the cube [-1, 1]^3."""
    return (np.arange(count) + 0.5) * (2.0 / count) - 1
