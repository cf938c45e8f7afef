"""The near plane of models whose rays start at the cameras."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from data.parsed_scene import SparsePoints
from data.scenes.sparse import LEAST_POINTS, well_supported

NEAREST_SHARE = 0.01  # quantile of the points' distances; nearer points are outliers
POINTS_SHARE = 0.5  # of that distance: textureless surfaces have no points and may be nearer
FOCUS_SHARE = 0.1  # of the distance from the nearest camera to the region's centre, without points


def near_plane(origins: np.ndarray, points: SparsePoints | None) -> float:
    """The distance within which V cameras, at `origins` [V, 3], see no surface, in working-frame units.

    From the SfM points, else from the centre of the region of interest, the frame's origin.
    """
    whole = FOCUS_SHARE * float(np.linalg.norm(origins, axis=1).min())
    if points is None:
        return whole
    xyz = well_supported(points)
    if len(xyz) < LEAST_POINTS:
        return whole
    distances = cKDTree(origins).query(xyz)[0]
    return POINTS_SHARE * float(np.quantile(distances, NEAREST_SHARE))
