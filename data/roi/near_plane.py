"""How near to the cameras something may be."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from data.parsed_scene import SparsePoints
from data.roi.sparse import LEAST_POINTS, well_supported

NEAREST_SHARE = 0.01  # of the points: those nearer to a camera than the others are wrong matches
POINTS_SHARE = 0.5  # of the way to the nearest point: what has no texture has no points, and may be nearer
FOCUS_SHARE = 0.1  # of the way from the nearest camera to what they look at: hands and lens caps aside


def near_plane(origins: np.ndarray, points: SparsePoints | None) -> float:
    """The distance from any of V cameras within which nothing is, working-frame units.

    From the points of structure from motion, else from the middle of the region of interest, the frame's origin.
    """
    whole = FOCUS_SHARE * float(np.linalg.norm(origins, axis=1).min())
    if points is None:
        return whole
    xyz = well_supported(points)
    if len(xyz) < LEAST_POINTS:
        return whole
    distances = cKDTree(origins).query(xyz)[0]
    return POINTS_SHARE * float(np.quantile(distances, NEAREST_SHARE))
