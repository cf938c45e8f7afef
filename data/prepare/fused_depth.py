"""The depth maps of a scene, fused into a truncated signed distance on a grid (Curless and Levoy, SIGGRAPH 1996).

They come from a plane sweep (Collins, CVPR 1996), at a reduced size: for each photograph, planes parallel to its image
are hypotheses of its depth. On each plane, its source views are warped into it and compared by the normalised
cross-correlation of windows. The best planes are depths, kept where the depth maps of other views agree.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import cv2
import numpy as np
from scipy.ndimage import gaussian_filter

from data.io.bars import Bar
from data.pixels import eight_bits, size_of, size_within
from data.scenes.frustum import Cameras, between_centres, cell_centres, signed_distances
from data.scenes.scene import Scene
from data.scenes.sparse import near_plane, neighbours, region_points
from data.scenes.undistort import resized

NEAREST = 1e-3  # depth, radii: an SfM point may coincide with a camera
# The depths of the sweep extend to this multiple of the far end of the sphere: what is behind it would match within.
FARTHEST_DEPTH = 10.0
CELLS = 64  # grid cells per side of the cube around the unit sphere: as fine as the first levels of a feature grid
FUSED_TRUNCATION = 6.0 / CELLS  # three cells
NEAR_SURFACE = 0.9  # of the truncation: the mean of the distances there is not truncated
OBSERVED = 2  # depth maps that must have observed a cell near the surface, or hidden one
LEAST_HIDDEN = 1 / 3  # depth maps that show a surface before an inner cell, as a fraction of the images that contain it
MOST_FREE = 0.25  # depth maps that see through a hidden cell, as a fraction of those that see something before it
FARTHEST_POINT = 4.0 / CELLS  # of a pixel's point from the fused surface: two cells
SMOOTHING = 1.0  # cells, standard deviation
LEAST_KNOWN = 0.05  # of the pixels; the outlines of objects without texture have depths, too
LEAST_DEPTH_POINTS = 1000  # of the depth maps in the region: fewer show no surface
MOST_DEPTH_POINTS = 50_000  # drawn from all; more do not change a training

SWEEP_SIDE = 240  # pixels, longer side of the reduced photographs; 180 cost quality
SOURCE_VIEWS = 4  # source views of a photograph; 3 cost quality, too
BEST = 2  # of them count at a pixel, because the point may be hidden in the others
CORRELATION_WINDOW = 7  # pixels
FEWEST_PLANES, MOST_PLANES = 32, 160
MOST_THREADS = 8  # the correlations of a view take up to 40 MB
PIXELS_PER_PLANE = 1.0  # a window is correlated within about a pixel of the right position
GREY_NOISE = 2.0  # grey levels squared, added to variances: a window that varies less is not textured
LEAST_CORRELATION = 0.6
LEAST_MARGIN = 0.05  # of the best correlation over those of other planes: repeated texture is ambiguous
NEAR_BEST = 2  # planes to either side of the best belong to the same maximum
# The depths of two views agree within this fraction, as in COLMAP (Schoenberger et al., ECCV 2016).
AGREEMENT = 0.01
AGREEING = 2  # views that must agree
OUTSIDE_GREY = -1e4  # grey value of pixels outside a source view; those interpolated with it are negative, too
WORST_CORRELATION = -1.0  # correlation of a plane that a source view does not see


@dataclass(frozen=True, eq=False)
class FusedDepth:
    """The surface that depth maps show within the unit sphere, working frame."""

    points: np.ndarray  # [N, 3] float32, of depth maps
    known: float  # fraction of the pixels of the reduced images that have a depth
    grid: np.ndarray  # [CELLS, CELLS, CELLS] float32, approximately the signed distance at the cell centres
    views: int = 0  # images, at most, that the depth maps are of

    def distances(self, points: np.ndarray) -> np.ndarray:
        """The distance [P, 1] at points [P, 3]."""
        return between_centres(self.grid, points)[:, None]


def fused_depth(scene: Scene, most: int) -> FusedDepth | None:
    """The fused depth of at most `most` evenly spaced images of a scene; None if too few pixels have a depth."""
    views = np.arange(0, scene.n_views, math.ceil(scene.n_views / most))
    cameras = scene.cameras.pick(views)
    sources = neighbours(cameras, region_points(scene.points), SOURCE_VIEWS)
    middle = -(cameras.origins * cameras.axes).sum(axis=1)  # the depth of the sphere's centre
    near = np.maximum(middle - 1.0, max(near_plane(cameras.origins, scene.points), NEAREST))
    far = FARTHEST_DEPTH * np.maximum(middle + 1.0, near)
    maps = swept([scene.images[view] for view in views], cameras, sources, near, far)
    known = float(np.mean([(depth > 0).mean() for depth in maps.depth]))
    if known < LEAST_KNOWN:
        return None
    grid = _signed_distance(maps)
    points = np.concatenate([maps.points(view) for view in range(len(views))]).astype(np.float32)
    points = np.random.default_rng(0).permutation(points[np.linalg.norm(points, axis=1) < 1])
    is_fused = np.abs(between_centres(grid, points)) < FARTHEST_POINT  # other depth maps contradict the rest
    if is_fused.sum() < LEAST_DEPTH_POINTS:
        return None
    return FusedDepth(points[is_fused][:MOST_DEPTH_POINTS], known, grid, most)


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
        ahead = np.where(seen > 0, (seen - z) / FUSED_TRUNCATION, 0)
        free += ahead > 0.5
        hidden += ahead < -0.5
        is_near = (seen > 0) & (ahead > -1)
        observed += is_near
        total += np.where(is_near, np.minimum(ahead, 1), 0)
    mean = total / np.maximum(observed, 1)
    is_surface = (observed >= OBSERVED) & (np.abs(mean) < NEAR_SURFACE)
    is_hidden = (hidden >= np.maximum(OBSERVED, LEAST_HIDDEN * within)) & (free < MOST_FREE * hidden)
    is_inside = np.where(is_surface, mean < 0, is_hidden)
    grid = (CELLS,) * 3
    from_surface = signed_distances(is_inside.reshape(grid), 2.0 / CELLS)
    distances = np.where(is_surface.reshape(grid), mean.reshape(grid) * FUSED_TRUNCATION, from_surface)
    return gaussian_filter(distances, SMOOTHING).astype(np.float32)


@dataclass(frozen=True, eq=False)
class DepthMaps:
    """V depth maps along the optical axes, in units of `cameras`."""

    cameras: Cameras  # of the reduced photographs
    depth: tuple[np.ndarray, ...]  # V of [h, w] float32; 0 where it is unknown

    def points(self, view: int) -> np.ndarray:
        """The points [N, 3] of the known pixels of a view."""
        rows, columns = np.nonzero(self.depth[view])
        return _unprojected(self.cameras, view, columns, rows, self.depth[view][rows, columns])

    def at(self, view: int, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The depth [N] of points [N, 3] in a view; that of its depth map at their pixels, 0 where it is unknown; and
        whether they are in the image.
        """
        column, row, z = _projected(self.cameras, view, points)
        width, height = self.cameras.sizes[view]
        is_within = (z > 0) & (column > -0.5) & (column < width - 0.5) & (row > -0.5) & (row < height - 0.5)
        column, row = (np.where(is_within, value, 0).round().astype(np.int32) for value in (column, row))
        return z, np.where(is_within, self.depth[view][row, column], 0), is_within


def swept(
    images: Sequence[np.ndarray], cameras: Cameras, sources: np.ndarray, near: np.ndarray, far: np.ndarray
) -> DepthMaps:
    """The depth maps of V images, unsigned integers [H, W, 3] in RGB order.

    Args:
        sources: the source views of each view, int [V, K], filled with -1.
        near, far: the range of depths of each view [V]; views without a range get no depth.
    """
    grey, small = _reduced(images, cameras)
    with ThreadPoolExecutor(min(MOST_THREADS, len(os.sched_getaffinity(0)))) as pool:
        chosen = [row[row >= 0] for row in sources]
        views, ranges = range(len(grey)), zip(near, far, strict=True)
        depths = pool.map(lambda view, ends: _depth(grey, small, view, chosen[view], *ends), views, ranges)
        bar = Bar(depths, desc="depth maps", total=len(grey), unit="photo", leave=False, disable=None)  # on a terminal
        maps = DepthMaps(small, tuple(bar))
        return DepthMaps(small, tuple(pool.map(lambda view: _consistent(maps, view, chosen[view]), views)))


def _reduced(images: Sequence[np.ndarray], cameras: Cameras) -> tuple[list[np.ndarray], Cameras]:
    """Grey images float32 [h, w] of at most SWEEP_SIDE pixels, and their cameras."""
    sizes = [size_within(size_of(image), SWEEP_SIDE)[0] for image in images]
    grey = [
        cv2.resize(cv2.cvtColor(eight_bits(image), cv2.COLOR_RGB2GRAY), size, interpolation=cv2.INTER_AREA)
        for image, size in zip(images, sizes, strict=True)
    ]
    scaled = zip(cameras.intrinsics, cameras.sizes, sizes, strict=True)
    intrinsics = np.stack([resized(given, tuple(size), small) for given, size, small in scaled])
    return [image.astype(np.float32) for image in grey], Cameras(intrinsics, cameras.c2w, np.array(sizes, np.float64))


def _depth(
    grey: Sequence[np.ndarray], cameras: Cameras, view: int, sources: np.ndarray, near: float, far: float
) -> np.ndarray:
    """The depth map float32 [h, w] of one view, not yet compared with others."""
    if len(sources) == 0 or far <= near:
        return np.zeros_like(grey[view])
    inverse = np.linspace(1 / near, 1 / far, _planes(cameras, view, sources, near, far))
    reference = _Window(grey[view])
    correlation = np.empty((len(inverse), *grey[view].shape), np.float32)
    for plane, depth in enumerate(1 / inverse):
        correlation[plane] = _correlation(reference, grey, cameras, view, sources, depth)
    best = correlation.argmax(axis=0)[None]
    planes = np.clip(best + np.arange(-NEAR_BEST, NEAR_BEST + 1)[:, None, None], 0, len(inverse) - 1)
    around = np.take_along_axis(correlation, np.clip(best + np.arange(-1, 2)[:, None, None], 0, len(inverse) - 1), 0)
    np.put_along_axis(correlation, planes, WORST_CORRELATION, 0)
    is_clear = (around[1] > LEAST_CORRELATION) & (around[1] - correlation.max(axis=0) > LEAST_MARGIN)
    is_clear &= (best[0] > 0) & (best[0] < len(inverse) - 1)  # a maximum at an end may lie beyond it
    # the vertex of the parabola through the correlations of three planes
    bend = around[0] - 2 * around[1] + around[2]
    shift = np.divide(0.5 * (around[0] - around[2]), bend, out=np.zeros_like(bend), where=bend < 0)
    at = inverse[0] + (best[0] + np.clip(shift, -0.5, 0.5)) * (inverse[1] - inverse[0])
    return np.where(is_clear, 1 / at, 0).astype(np.float32)


def _planes(cameras: Cameras, view: int, sources: np.ndarray, near: float, far: float) -> int:
    """The number of planes by which the image centre moves PIXELS_PER_PLANE in the source view where it moves most."""
    column, row = 0.5 * (cameras.sizes[view] - 1)
    ends = _unprojected(cameras, view, np.full(2, column), np.full(2, row), np.array([near, far]))
    moves = [np.linalg.norm(np.diff(_projected(cameras, source, ends)[:2])) for source in sources]
    return int(np.clip(np.ceil(max(moves) / PIXELS_PER_PLANE), FEWEST_PLANES, MOST_PLANES))


class _Window:
    """The mean and the variance of the window around each pixel of an image [h, w]."""

    def __init__(self, image: np.ndarray) -> None:
        self.image, self.mean = image, _box(image)
        self.variance = np.maximum(_box(image * image) - self.mean * self.mean, 0) + GREY_NOISE


def _correlation(
    reference: _Window, grey: Sequence[np.ndarray], cameras: Cameras, view: int, sources: np.ndarray, depth: float
) -> np.ndarray:
    """The mean of the BEST highest correlations with the source views [h, w], if the depth were that of a plane."""
    ranked = [np.full_like(reference.image, WORST_CORRELATION) for _ in range(min(BEST, len(sources)))]
    for source in sources:
        warped = cv2.warpPerspective(
            grey[source],
            _homography(cameras, view, source, depth),
            size_of(reference.image),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderValue=(OUTSIDE_GREY,),
        )
        is_outside = warped < 0
        warped[is_outside] = 0
        window = _Window(warped)
        value = _box(reference.image * warped)
        value -= reference.mean * window.mean
        value /= np.sqrt(reference.variance * window.variance)
        value[is_outside] = WORST_CORRELATION
        for rank, held in enumerate(ranked):
            ranked[rank], value = np.maximum(held, value), np.minimum(held, value)
    return sum(ranked[1:], ranked[0]) / len(ranked)


def _homography(cameras: Cameras, view: int, source: int, depth: float) -> np.ndarray:
    """Pixels of a view, on a plane at this depth parallel to its image, to pixels of a source view: [3, 3].

    Hartley and Zisserman, Multiple View Geometry, eq. 13.2.
    """
    to_source = np.linalg.inv(cameras.c2w[source]) @ cameras.c2w[view]
    moved = to_source[:3, :3] + np.outer(to_source[:3, 3], (0, 0, 1 / depth))
    return cameras.intrinsics[source] @ moved @ np.linalg.inv(cameras.intrinsics[view])


def _box(image: np.ndarray) -> np.ndarray:
    return cv2.boxFilter(image, -1, (CORRELATION_WINDOW, CORRELATION_WINDOW), borderType=cv2.BORDER_REFLECT)


def _consistent(maps: DepthMaps, view: int, sources: np.ndarray) -> np.ndarray:
    """The depth map of a view, 0 where fewer than AGREEING source views agree."""
    depth = maps.depth[view]
    points = maps.points(view)
    agreeing = np.zeros(len(points), np.int32)
    for source in sources:
        z, there, _ = maps.at(source, points)
        agreeing += np.abs(there - z) < AGREEMENT * z
    consistent = np.zeros_like(depth)
    consistent[depth > 0] = np.where(agreeing >= min(AGREEING, len(sources)), depth[depth > 0], 0)
    return consistent


def _unprojected(cameras: Cameras, view: int, columns: np.ndarray, rows: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """Points [N, 3] of pixels of a view at these depths along its optical axis, [N] each."""
    pixels = np.stack([columns, rows, np.ones(len(columns))]) * depth
    return (cameras.c2w[view, :3, :3] @ np.linalg.inv(cameras.intrinsics[view]) @ pixels).T + cameras.c2w[view, :3, 3]


def _projected(cameras: Cameras, view: int, points: np.ndarray) -> np.ndarray:
    """Column, row and depth of points [N, 3] in a view: [3, N]; without meaning for a depth of at most 0."""
    x, y, z = cameras.intrinsics[view] @ cameras.c2w[view, :3, :3].T @ (points - cameras.c2w[view, :3, 3]).T
    safe = np.where(z > 0, z, 1.0)
    return np.stack([x / safe, y / safe, z])
