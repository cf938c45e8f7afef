"""The box that a mesh is extracted from: that of the region of interest, or a given one."""

from __future__ import annotations

import itertools

import numpy as np

from data.errors import UserError

# Half width of the region a mesh is extracted from, as published, in radii of the object's sphere: slightly larger, so
# that a surface that touches the sphere is closed.
REGION_HALF_WIDTH = 1.01
NARROWEST_BOX, FARTHEST_BOX = 1e-3, 1e3  # radii; float32 cannot separate 2048 points in a smaller box


def extraction_region(scale_mat: np.ndarray, object_scale_mat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smallest axis-aligned box around the object's cube of +-1.01: two corners [3] in the working frame.

    As published for matrices without rotation. With a rotation, the published code transforms two corners only, which
    may give an empty box.
    """
    cube = REGION_HALF_WIDTH * np.array([[-1.0] * 3, [1.0] * 3])
    low, high = bounds(cube, np.linalg.inv(scale_mat) @ object_scale_mat)
    return low, high


def bounds(box: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """The smallest axis-aligned box [2, 3] around a box [2, 3] (low and high corner) transformed by `matrix` [4, 4]."""
    corners = np.array([[*corner, 1.0] for corner in itertools.product(*box.T)])
    moved = (corners @ matrix.T)[:, :3]
    return np.stack([moved.min(axis=0), moved.max(axis=0)])


def parse_bbox(text: str) -> np.ndarray:
    """The box of `dataset.bbox`: its low and high corner, float64 [2, 3], world frame.

    Raises UserError for a text that is not six finite numbers, and for a box without a volume.
    """
    try:
        numbers = np.array([float(word) for word in text.replace(",", " ").split()])
    except ValueError:
        numbers = np.zeros(0)
    if numbers.shape != (6,) or not (np.isfinite(numbers).all() and (numbers[:3] < numbers[3:]).all()):
        raise UserError(
            f'dataset.bbox = "{text}": must be six numbers, x0 y0 z0 x1 y1 z1, each of the first three below that of '
            'the last three, such as "-1 -1 -1 1 1 1"'
        )
    return numbers.reshape(2, 3)


def box_in_frame(box: np.ndarray, scale_mat: np.ndarray, given_by: str) -> tuple[np.ndarray, np.ndarray]:
    """The smallest axis-aligned box in the working frame around a box [2, 3] of the world frame: two corners [3].

    Raises UserError, naming `given_by`, if float32 cannot separate the grid points in it, or if it is too far away.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # rejected below
        found = bounds(box, np.linalg.inv(scale_mat))
    low, high = found
    if not (np.abs(found).max() <= FARTHEST_BOX and (high - low).min() >= NARROWEST_BOX):
        raise UserError(
            f"{given_by} {' '.join(f'{value:.12g}' for value in box.reshape(-1))}: must be at least "
            f"{NARROWEST_BOX:g} and reach at most {FARTHEST_BOX:g} radii of the region of interest; correct it"
        )
    return low, high
