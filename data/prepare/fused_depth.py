"""The depth maps of a scene, fused into a truncated signed distance on a grid (Curless and Levoy, SIGGRAPH 1996)."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from scipy.ndimage import gaussian_filter

from data.io.clock import phase, seconds_left, slowdown
from data.prepare.plane_sweep import SOURCES, DepthMaps, swept
from data.scenes.frustum import Cameras, between_centres, cell_centres, signed_distances
from data.scenes.scene import Scene
from data.scenes.sparse import near_plane, neighbours, region_points

NEAREST = 1e-3  # depth, radii: an SfM point may coincide with a camera
# The depths of the sweep extend to this multiple of the far end of the sphere: what is behind it would match within.
BEYOND = 10.0
CELLS = 64  # grid cells per side of the cube around the unit sphere: as fine as the first levels of a feature grid
TRUNCATION = 6.0 / CELLS  # three cells
NEAR_SURFACE = 0.9  # of the truncation: the mean of the distances there is not truncated
OBSERVED = 2  # depth maps that must have observed a cell near the surface, or hidden one
LEAST_HIDDEN = 1 / 3  # depth maps that show a surface before an inner cell, as a fraction of the images that contain it
MOST_FREE = 0.25  # depth maps that see through a hidden cell, as a fraction of those that see something before it
FARTHEST_POINT = 4.0 / CELLS  # of a pixel's point from the fused surface: two cells
SMOOTHING = 1.0  # cells, standard deviation
LEAST_KNOWN = 0.05  # of the pixels; the outlines of objects without texture have depths, too
LEAST_POINTS = 1000  # of the depth maps in the region: fewer show no surface
MOST_POINTS = 50_000  # drawn from all; more do not change a training
SECONDS = 0.4  # of one core per depth map, about
FEWEST_MAPS = 24

_FOUND: WeakKeyDictionary[Scene, FusedDepth | None] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class FusedDepth:
    """The surface that depth maps show within the unit sphere, working frame."""

    points: np.ndarray  # [N, 3] float32, of depth maps
    known: float  # fraction of the pixels of the reduced images that have a depth
    grid: np.ndarray  # [CELLS, CELLS, CELLS] float32, approximately the signed distance at the cell centres

    def distances(self, points: np.ndarray) -> np.ndarray:
        """The distance [P, 1] at points [P, 3]."""
        return between_centres(self.grid, points)[:, None]


@phase("depth maps")
def fused_depth(scene: Scene) -> FusedDepth | None:
    """The fused depth of the images of a scene; None if too few of their pixels have a depth in the region.

    Where the time is too short (`ends_at`), of evenly spaced images. Found once per scene.
    """
    if scene not in _FOUND:
        fitting = seconds_left() * len(os.sched_getaffinity(0)) / (SECONDS * slowdown())
        _FOUND[scene] = _fused(scene, views_within(scene.n_views, fitting))
    return _FOUND[scene]


def views_within(count: int, fitting: float) -> np.ndarray:
    """Evenly spaced indices of `count` images, at most about `fitting` or FEWEST_MAPS of them, int [N]."""
    return np.arange(0, count, max(1, math.ceil(count / max(fitting, FEWEST_MAPS))))


def _fused(scene: Scene, views: np.ndarray) -> FusedDepth | None:
    whole = scene.cameras
    cameras = Cameras(whole.intrinsics[views], whole.c2w[views], whole.sizes[views])
    sources = neighbours(cameras, region_points(scene.points), SOURCES)
    middle = -(cameras.origins * cameras.axes).sum(axis=1)  # the depth of the sphere's centre
    near = np.maximum(middle - 1.0, max(near_plane(cameras.origins, scene.points), NEAREST))
    far = BEYOND * np.maximum(middle + 1.0, near)
    maps = swept([scene.images[view] for view in views], cameras, sources, near, far)
    known = float(np.mean([(depth > 0).mean() for depth in maps.depth]))
    if known < LEAST_KNOWN:
        return None
    grid = _signed_distance(maps)
    points = np.concatenate([maps.points(view) for view in range(len(views))]).astype(np.float32)
    points = np.random.default_rng(0).permutation(points[np.linalg.norm(points, axis=1) < 1])
    is_fused = np.abs(between_centres(grid, points)) < FARTHEST_POINT  # other depth maps contradict the rest
    if is_fused.sum() < LEAST_POINTS:
        return None
    return FusedDepth(points[is_fused][:MOST_POINTS], known, grid)


def _signed_distance(maps: DepthMaps) -> np.ndarray:
    """Approximate signed distances on the grid, float32.

    Near a surface it is the mean of the truncated distances along the rays. A cell elsewhere is inside if enough depth
    maps show a surface before it and few see through it; what lies behind an object is hidden in few of the images. Its
    distance is that to the nearest cell of the other side.
    """
    centres = cell_centres(CELLS)
    total, free, hidden, observed, within = np.zeros((5, len(centres)), np.float32)
    for view in range(len(maps.depth)):
        z, seen, is_within = maps.at(view, centres)
        within += is_within
        ahead = np.where(seen > 0, (seen - z) / TRUNCATION, 0)
        free += ahead > 0.5
        hidden += ahead < -0.5
        is_near = (seen > 0) & (ahead > -1)
        observed += is_near
        total += np.where(is_near, np.minimum(ahead, 1), 0)
    mean = total / np.maximum(observed, 1)
    is_surface = (observed >= OBSERVED) & (np.abs(mean) < NEAR_SURFACE)
    is_hidden = (hidden >= np.maximum(OBSERVED, LEAST_HIDDEN * within)) & (free < MOST_FREE * hidden)
    is_inside = np.where(is_surface, mean < 0, is_hidden)
    is_surface, is_inside, mean = (of.reshape((CELLS,) * 3) for of in (is_surface, is_inside, mean))
    distances = np.where(is_surface, mean * TRUNCATION, signed_distances(is_inside, 2.0 / CELLS))
    return gaussian_filter(distances, SMOOTHING).astype(np.float32)
