"""The SfM points on the object: supported, visible in most images, dense and near the cameras' focus.

Photographs of a place, such as an aerial survey or a room, show no common object: all dense points belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.spatial import cKDTree

from data.cameras import evenly_spaced
from data.parsed_scene import SparsePoints, training_points
from data.roi.frustum import Cameras, enclosing_ball, frustum_distances, meeting_point

MOST_POINTS = 20_000  # a random subset of this size is enough for a sphere
MOST_VIEWS = 120  # likewise, evenly chosen
LEAST_POINTS = 30  # fewer are not reliable
SURE_VIEWS = 3  # a wrong match of two views can still be triangulated
WORST_ERROR = 3.0  # times the median reprojection error
NEIGHBOURS = 8
SPARSEST = 3.0  # times the median distance to the NEIGHBOURS-th neighbour: points with a larger one are outliers
TRIMMED = 0.98  # of the remaining points: those inside the ball
TRIMMING_ROUNDS = 10
LEAST_COMMON = 0.02  # of the points: with fewer in most images, the photographs show no common object
# Mean squared sine of the angles between the optical axes and their common direction: with less, 6 degrees, their
# meeting point is determined by how the camera was held. Of an aerial survey (0.0017) it was 15 times as far away as
# the ground; of photographs around or in front of an object it is 0.1 to 0.3.
LEAST_SPREAD = 0.011

Filter = Callable[[np.ndarray, Cameras], np.ndarray]  # points [K, 3] -> bool [K]


def object_points(cameras: Cameras, points: SparsePoints) -> np.ndarray | None:
    """The points [K, 3] of the object that most of `cameras` look at; None if fewer than LEAST_POINTS remain.

    Removed, in this order: badly supported points, points outside most images, the background (farther from the
    cameras' focus than the cameras), isolated points, and the outermost 2 %.
    """
    return _chosen(_some(points), cameras, (_shown_by_most, _around_the_focus, _dense, _central))


def place_points(cameras: Cameras, points: SparsePoints) -> np.ndarray | None:
    """The points [K, 3] of a place that `cameras` show in parts; None if they show a common object or LEAST_POINTS do
    not remain.

    Removed: badly supported points, isolated points, and the outermost 2 %.
    """
    xyz = _some(points)
    if not len(xyz) or _shown_by_most(xyz, cameras).mean() >= LEAST_COMMON:
        return None
    return _chosen(xyz, cameras, (_dense, _central))


def _some(points: SparsePoints) -> np.ndarray:
    """The well-supported points, at most MOST_POINTS."""
    xyz = well_supported(points)
    return xyz if len(xyz) <= MOST_POINTS else np.random.default_rng(0).choice(xyz, MOST_POINTS, replace=False)


def _chosen(xyz: np.ndarray, cameras: Cameras, filters: Sequence[Filter]) -> np.ndarray | None:
    """The points that pass all filters; None if LEAST_POINTS do not remain."""
    for choose in filters:
        if len(xyz) < LEAST_POINTS:
            return None
        xyz = xyz[choose(xyz, cameras)]
    return xyz if len(xyz) >= LEAST_POINTS else None


def well_supported(points: SparsePoints) -> np.ndarray:
    """Points [K, 3] that are finite, have no outlying reprojection error, and SURE_VIEWS views if enough have."""
    finite = np.isfinite(points.xyz).all(axis=1) & (np.abs(np.nan_to_num(points.xyz)).max(axis=1, initial=0) < 1e30)
    known = np.isfinite(points.error)
    if known.any():
        finite &= ~known | (points.error <= WORST_ERROR * np.median(points.error[known]))
    sure = finite & (points.n_views >= SURE_VIEWS)
    return points.xyz[sure if sure.sum() >= LEAST_POINTS else finite].astype(np.float64)


def region_points(points: SparsePoints | None) -> np.ndarray | None:
    """The well-supported points [K, 3] in the unit sphere that training may use; None without points."""
    if points is None:
        return None
    xyz = well_supported(training_points(points))
    return xyz[np.linalg.norm(xyz, axis=1) < 1]


def _shown_by_most(xyz: np.ndarray, cameras: Cameras) -> np.ndarray:
    """bool [K]: visible in more than half of the images."""
    chosen = evenly_spaced(len(cameras), MOST_VIEWS)
    return 2 * np.sum(frustum_distances(xyz, cameras.pick(chosen)) > 0, axis=0) > len(chosen)


def _around_the_focus(xyz: np.ndarray, cameras: Cameras) -> np.ndarray:
    """bool [K]: nearer to the cameras' focus than the median camera; all if the axes are (nearly) parallel."""
    focus = meeting_point(cameras.origins, cameras.axes, LEAST_SPREAD)
    if focus is None or 2 * np.sum(frustum_distances(focus[None], cameras) > 0) <= len(cameras):
        return np.ones(len(xyz), dtype=bool)
    limit = np.median(np.linalg.norm(cameras.origins - focus, axis=1))
    return np.linalg.norm(xyz - focus, axis=1) < limit


def _dense(xyz: np.ndarray, cameras: Cameras) -> np.ndarray:
    """bool [K]: about as near to their neighbours as most points."""
    del cameras
    distance = cKDTree(xyz).query(xyz, k=NEIGHBOURS + 1)[0][:, -1]
    return distance <= SPARSEST * np.median(distance)


def _central(xyz: np.ndarray, cameras: Cameras) -> np.ndarray:
    """bool [K]: the fraction TRIMMED inside the smallest ball, found by repeated trimming of the farthest points."""
    del cameras
    centre = xyz.mean(axis=0)  # more robust to a few far points than the centre of the ball
    for _ in range(TRIMMING_ROUNDS):
        distance = np.linalg.norm(xyz - centre, axis=1)
        kept = distance <= np.quantile(distance, TRIMMED)
        centre = enclosing_ball(xyz[kept])[0]
    return kept
