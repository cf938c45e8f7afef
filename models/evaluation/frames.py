"""Check that ground truth is in the frame and scale of the scene, by its position and its distance from the surface.

All in the working frame: the region of interest is the unit sphere at the origin.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from data.errors import UserError

LEAST_INSIDE = 0.05  # smallest fraction of the ground truth inside the region of interest
SMALLEST = 0.03  # smallest extent, in radii of the region
LARGEST = 3.0  # a larger extent is a wrong scale rather than an offset
REACH = 0.9  # quantile of the distances from the centre, which ignores a few far points
MARGIN = 1.05  # radii; a surface may touch the sphere
FEWEST = 100  # smallest number of points whose distances tell a frame
NEAR = 0.05  # fraction of the extent below which a distance counts as the same frame
BETTER = 0.3  # factor on the distance that the other frame must achieve
SAMPLES = 20_000  # largest number of points of each surface: their spacing is far below NEAR


def require_in_region(points: np.ndarray, source: str, frames: str) -> None:
    """Raises UserError if points [N, 3] are outside the region of interest, or have another size.

    source: the start of the message; frames: the advice at its end.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers so large that the sum overflows
        middle, reach = _place(points)
        inside = float(np.mean(np.linalg.norm(points, axis=1) <= MARGIN))
        off = float(np.linalg.norm(middle))
    if inside >= LEAST_INSIDE and (reach >= SMALLEST or len(points) < FEWEST):
        return
    told = f"its centre is {off:.3g} radii from the centre of the region of interest"
    if reach > LARGEST or reach < SMALLEST:
        told = (
            f"it extends {reach:.3g} radii from the centre of the region of interest, the object should extend 0.2 to 1"
        )
    raise UserError(f"{source}: has another frame or scale than the scene: {told}; {frames}")


def frame_note(found: np.ndarray, given: np.ndarray, otherwise: np.ndarray, source: str, frames: str) -> str:
    """A note on ground truth [N, 3] that is far from the surface's points [P, 3]; "" if it is near.

    otherwise: the same ground truth, read in the other frame of `--frame`, [N, 3]. Raises UserError if it fits there.
    source: the start of the message; frames: the advice at its end.
    """
    own = _apart(found, given)
    if own <= NEAR * _place(given)[1] or len(given) < FEWEST:
        return ""
    apart = _apart(found, otherwise)
    if apart <= min(BETTER * own, NEAR * _place(otherwise)[1]):
        raise UserError(
            f"{source}: has another frame or scale than the scene: read in the other frame, it is {own / apart:.0f} "
            f"times closer to the surface; {frames}"
        )
    return f"{source}: is {own:.2g} radii from the surface, which is unfinished, or has another frame: {frames}"


def _place(points: np.ndarray) -> tuple[np.ndarray, float]:
    """The centre [3] and the extent of points."""
    middle = np.median(points, axis=0)
    return middle, float(np.quantile(np.linalg.norm(points - middle, axis=1), REACH))


def _apart(found: np.ndarray, given: np.ndarray) -> float:
    """The mean of both median distances to nearest points."""
    return 0.5 * float(np.median(cKDTree(found).query(given)[0]) + np.median(cKDTree(given).query(found)[0]))
