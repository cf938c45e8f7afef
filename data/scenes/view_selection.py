"""View selection for multi-view consistency: the source views of each view."""

from __future__ import annotations

import numpy as np

from data.scenes.frustum import Cameras
from data.scenes.sparse import LEAST_POINTS

# The score of a shared point by its triangulation angle (MVSNet, arXiv 1804.02505, section 4.1): highest at 5 degrees,
# lower below, where depth is uncertain, and above, where patches look different.
BEST_ANGLE, NARROWER, WIDER = 5.0, 1.0, 10.0  # degrees
LEAST_SHARE = 1e-3  # lowest score of a source view: an angle of 40 degrees, or almost no shared points
MOST_POINTS = 2000  # evenly chosen; more do not change the selection
STAND_INS = 200  # points on a sphere that replace missing SfM points
STAND_IN_RADIUS = 0.5  # of that sphere, working-frame units: the initial surface of a training


def neighbours(cameras: Cameras, points: np.ndarray | None, most: int) -> np.ndarray:
    """The source views of each view, best score first: int32 [V, most], filled with -1.

    points: SfM points [N, 3] in the region. With None or fewer than LEAST_POINTS, points on a sphere around the origin
    replace them, and the angles between cameras decide. A point counts as shared if it projects into both images.
    """
    if points is None or len(points) < LEAST_POINTS:
        points = _sphere(STAND_INS) * STAND_IN_RADIUS
    points = points[:: -(-len(points) // MOST_POINTS)]
    away = cameras.origins[:, None] - points[None]
    towards = away / np.maximum(np.linalg.norm(away, axis=2, keepdims=True), np.finfo(np.float32).tiny)
    is_seen = np.stack([_holds(camera, points) for camera in cameras])
    found = np.full((len(cameras), most), -1, np.int32)
    for view in range(len(cameras)):
        angle = np.degrees(np.arccos(np.clip((towards * towards[view]).sum(axis=2), -1, 1)))
        width = np.where(angle < BEST_ANGLE, NARROWER, WIDER)
        worth = np.exp(-0.5 * ((angle - BEST_ANGLE) / width) ** 2) * is_seen * is_seen[view]
        score = worth.mean(axis=1)
        score[view] = 0.0
        ranked = np.argsort(-score, kind="stable")[:most]
        ranked = ranked[score[ranked] > LEAST_SHARE]
        found[view, : len(ranked)] = ranked
    return found


def _holds(camera: tuple[np.ndarray, np.ndarray, np.ndarray], points: np.ndarray) -> np.ndarray:
    """bool [N]: whether the points [N, 3] project into an image."""
    intrinsics, c2w, size = camera
    x, y, depth = intrinsics @ c2w[:3, :3].T @ (points - c2w[:3, 3]).T
    ahead = depth > 0
    x, y = (np.divide(value, depth, out=np.full_like(value, -1.0), where=ahead) for value in (x, y))
    return ahead & (x >= 0) & (y >= 0) & (x <= size[0] - 1) & (y <= size[1] - 1)


def _sphere(count: int) -> np.ndarray:
    """Evenly distributed unit vectors [count, 3], on a spiral of the golden angle."""
    z = 1 - (2 * np.arange(count) + 1) / count
    turn = np.pi * (3 - np.sqrt(5)) * np.arange(count)
    return np.stack([np.sqrt(1 - z**2) * np.cos(turn), np.sqrt(1 - z**2) * np.sin(turn), z], axis=1)
