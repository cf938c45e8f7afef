"""The SfM points on the object: supported, visible in most images, dense and near the cameras' focus.

Photographs of a place, such as an aerial survey or a room, may show no common object: all dense points belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.spatial import cKDTree

from data.cameras import evenly_spaced
from data.parsed_scene import SparsePoints, training_points
from data.rays import PinholeCamera
from data.scenes.frustum import Cameras, enclosing_ball, frustum_distances, meeting_point, sphere_points

MOST_REGION_POINTS = 20_000  # a random subset of this size is enough for a sphere
MOST_REGION_VIEWS = 120  # likewise, evenly chosen
LEAST_REGION_POINTS = 30  # fewer are not reliable
SURE_VIEWS = 3  # a wrong match of two views can still be triangulated
WORST_ERROR = 3.0  # times the median reprojection error
DENSITY_NEIGHBOURS = 8
SPARSEST = (
    3.0  # times the median distance to the DENSITY_NEIGHBOURS-th neighbour: points with a larger one are outliers
)
TRIMMED = 0.98  # of the remaining points: those inside the ball
TRIMMING_ROUNDS = 10
# Median depth of the points that a camera sees, over the depth of the cameras' focus: with less, what the cameras see
# hides the focus. Nearly parallel axes have such a meeting point, which depends on how the camera was held: that of
# an aerial survey was 15 times as far away as the ground.
HIDDEN_FOCUS = 0.5

Filter = Callable[[np.ndarray, Cameras], np.ndarray]  # points [K, 3] -> bool [K]
NEAREST_SHARE = 0.01  # quantile of the points' distances; nearer points are outliers
NEAR_POINTS_SHARE = 0.5  # of that distance: textureless surfaces have no points and may be nearer
NEAR_FOCUS_SHARE = 0.1  # of the distance from the nearest camera to the region's centre, without points
# The score of a shared point by its triangulation angle (MVSNet, arXiv 1804.02505, section 4.1): highest at 5 degrees,
# lower below, where depth is uncertain, and above, where patches look different.
BEST_ANGLE, NARROWER, WIDER = 5.0, 1.0, 10.0  # degrees
LEAST_SOURCE_SCORE = 1e-3  # lowest score of a source view: an angle of 40 degrees, or almost no shared points
MOST_SELECTING = 2000  # evenly chosen; more do not change the selection
STAND_INS = 200  # points on a sphere that replace missing SfM points
STAND_IN_RADIUS = 0.5  # of that sphere, working-frame units: the initial surface of a training


def object_points(cameras: Cameras, points: SparsePoints) -> np.ndarray | None:
    """The points [K, 3] of the object that most of `cameras` look at; None if fewer than LEAST_REGION_POINTS remain.

    Removed, in this order: badly supported points, points outside most images, the background (farther from the
    cameras' focus than the cameras), isolated points, and the outermost 2 %.
    """
    return _filtered(_supported_subset(points), cameras, (_in_most_images, _around_the_focus, _dense, _central))


def place_points(cameras: Cameras, points: SparsePoints) -> np.ndarray | None:
    """The points [K, 3] of a place that `cameras` show in parts; None if they have a common focus that is not hidden by
    what they see, or LEAST_REGION_POINTS do not remain.

    Removed: badly supported points, isolated points, and the outermost 2 %.
    """
    xyz, focus = _supported_subset(points), _common_focus(cameras)
    if len(xyz) < LEAST_REGION_POINTS:
        return None
    if focus is not None:
        some = cameras.pick(evenly_spaced(len(cameras), MOST_REGION_VIEWS))
        origins = np.einsum("vi,vi->v", some.axes, some.origins)
        depths = np.where(frustum_distances(xyz, some) > 0, some.axes @ xyz.T - origins[:, None], np.nan)
        has_points = ~np.isnan(depths).all(axis=1)
        to_points, to_focus = np.nanmedian(depths[has_points], axis=1), (some.axes @ focus - origins)[has_points]
        if not has_points.any() or not np.median(to_points / to_focus) < HIDDEN_FOCUS:
            return None
    return _filtered(xyz, cameras, (_dense, _central))


def _common_focus(cameras: Cameras) -> np.ndarray | None:
    """The point [3] that the cameras look at; None if their axes are parallel, or most images do not show it."""
    focus = meeting_point(cameras.origins, cameras.axes)
    if focus is None or 2 * np.sum(frustum_distances(focus[None], cameras) > 0) <= len(cameras):
        return None
    return focus


def _supported_subset(points: SparsePoints) -> np.ndarray:
    """The well-supported points, at most MOST_REGION_POINTS."""
    xyz = well_supported(points)
    return (
        xyz
        if len(xyz) <= MOST_REGION_POINTS
        else np.random.default_rng(0).choice(xyz, MOST_REGION_POINTS, replace=False)
    )


def _filtered(xyz: np.ndarray, cameras: Cameras, filters: Sequence[Filter]) -> np.ndarray | None:
    """The points that pass all filters; None if LEAST_REGION_POINTS do not remain."""
    for choose in filters:
        if len(xyz) < LEAST_REGION_POINTS:
            return None
        xyz = xyz[choose(xyz, cameras)]
    return xyz if len(xyz) >= LEAST_REGION_POINTS else None


def well_supported(points: SparsePoints) -> np.ndarray:
    """Points [K, 3] that are finite, have no outlying reprojection error, and SURE_VIEWS views if enough have."""
    finite = np.isfinite(points.xyz).all(axis=1) & (np.abs(np.nan_to_num(points.xyz)).max(axis=1, initial=0) < 1e30)
    known = np.isfinite(points.error)
    if known.any():
        finite &= ~known | (points.error <= WORST_ERROR * np.median(points.error[known]))
    sure = finite & (points.n_views >= SURE_VIEWS)
    return points.xyz[sure if sure.sum() >= LEAST_REGION_POINTS else finite].astype(np.float64)


def region_points(points: SparsePoints | None) -> np.ndarray | None:
    """The well-supported points [K, 3] in the unit sphere that training may use; None without points."""
    if points is None:
        return None
    xyz = well_supported(training_points(points))
    return xyz[np.linalg.norm(xyz, axis=1) < 1]


def _in_most_images(xyz: np.ndarray, cameras: Cameras) -> np.ndarray:
    """bool [K]: visible in more than half of the images."""
    chosen = evenly_spaced(len(cameras), MOST_REGION_VIEWS)
    return 2 * np.sum(frustum_distances(xyz, cameras.pick(chosen)) > 0, axis=0) > len(chosen)


def _around_the_focus(xyz: np.ndarray, cameras: Cameras) -> np.ndarray:
    """bool [K]: nearer to the cameras' focus than the median camera; all if there is none."""
    focus = _common_focus(cameras)
    if focus is None:
        return np.ones(len(xyz), dtype=bool)
    limit = np.median(np.linalg.norm(cameras.origins - focus, axis=1))
    return np.linalg.norm(xyz - focus, axis=1) < limit


def _dense(xyz: np.ndarray, cameras: Cameras) -> np.ndarray:
    """bool [K]: about as near to their neighbours as most points."""
    del cameras
    distance = cKDTree(xyz).query(xyz, k=DENSITY_NEIGHBOURS + 1)[0][:, -1]
    return distance <= SPARSEST * np.median(distance)


def _central(xyz: np.ndarray, cameras: Cameras) -> np.ndarray:
    """bool [K]: the fraction TRIMMED inside the smallest ball, found by repeated trimming of the farthest points."""
    del cameras
    centre = xyz.mean(axis=0)  # more robust to a few far points than the centre of the ball
    for _ in range(TRIMMING_ROUNDS):
        distance = np.linalg.norm(xyz - centre, axis=1)
        is_inside = distance <= np.quantile(distance, TRIMMED)
        centre = enclosing_ball(xyz[is_inside])[0]
    return is_inside


def near_plane(origins: np.ndarray, points: SparsePoints | None) -> float:
    """The distance within which V cameras, at `origins` [V, 3], see no surface, in working-frame units.

    From the SfM points, else from the centre of the region of interest, the frame's origin.
    """
    whole = NEAR_FOCUS_SHARE * float(np.linalg.norm(origins, axis=1).min())
    if points is None:
        return whole
    xyz = well_supported(points)
    if len(xyz) < LEAST_REGION_POINTS:
        return whole
    distances = cKDTree(origins).query(xyz)[0]
    return NEAR_POINTS_SHARE * float(np.quantile(distances, NEAREST_SHARE))


def neighbours(cameras: Cameras, points: np.ndarray | None, most: int) -> np.ndarray:
    """The source views of each view, best score first: int32 [V, most], filled with -1.

    points: SfM points [N, 3] in the region. Fewer than LEAST_REGION_POINTS are replaced by points on a sphere around
    the origin, and the angles between cameras decide. A point counts as shared if it projects into both images.
    """
    if points is None or len(points) < LEAST_REGION_POINTS:
        points = sphere_points(STAND_INS) * STAND_IN_RADIUS
    points = points[:: -(-len(points) // MOST_SELECTING)]
    away = cameras.origins[:, None] - points[None]
    towards = away / np.maximum(np.linalg.norm(away, axis=2, keepdims=True), np.finfo(np.float32).tiny)
    pinholes = [PinholeCamera(intrinsics, c2w, *size) for intrinsics, c2w, size in cameras]
    is_seen = np.stack([camera.shows(*camera.project(points)) for camera in pinholes])
    sources = np.full((len(cameras), most), -1, np.int32)
    for view in range(len(cameras)):
        angle = np.degrees(np.arccos(np.clip((towards * towards[view]).sum(axis=2), -1, 1)))
        width = np.where(angle < BEST_ANGLE, NARROWER, WIDER)
        worth = np.exp(-0.5 * ((angle - BEST_ANGLE) / width) ** 2) * is_seen * is_seen[view]
        score = worth.mean(axis=1)
        score[view] = 0.0
        ranked = np.argsort(-score, kind="stable")[:most]
        ranked = ranked[score[ranked] > LEAST_SOURCE_SCORE]
        sources[view, : len(ranked)] = ranked
    return sources
