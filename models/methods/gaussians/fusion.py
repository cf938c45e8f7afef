"""TSDF fusion of rendered depth maps (Curless and Levoy 1996). V cameras, P points of the working frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from data.rays import PinholeCamera
from models.methods.protocol import LevelSet

TRUNCATION = 0.03  # working-frame units: truncation distance
SEEN = 0.2  # smallest opacity of a pixel with a surface; keeps half-covered pixels of outlines
FREE = 1.0  # in truncations: value of points in front of all surfaces or outside all images
# Weight of a camera with free space at a point, relative to one that sees a surface there. At grazing views a pixel
# more or less is free; a larger weight would erode the surface.
FREE_WEIGHT = 0.1
# Fraction of the cameras that must see free space at a point away from surfaces; otherwise it is solid. One wrong
# camera among thirty therefore creates no tunnel.
LOOKED_THROUGH = 0.03


Depths = tuple[np.ndarray, np.ndarray]  # depth and opacity [H, W] of an image


def fused(depth_of: Callable[[PinholeCamera], Depths], cameras: Sequence[PinholeCamera]) -> LevelSet:
    """The zero level set separates the space in front of the surfaces from that behind.

    The depth maps of all cameras are rendered at first use.
    """
    maps = cache(lambda: [depth_of(camera) for camera in cameras])
    return LevelSet(lambda points: _outward(points, cameras, maps()), 0.0, "the fused distance", background="masks")


def _outward(points: np.ndarray, cameras: Sequence[PinholeCamera], maps: Sequence[Depths]) -> np.ndarray:
    """The weighted mean of the truncated signed distances, [P, 1]; points that are occluded in all images are solid."""
    total, count, near, hidden = (np.zeros(len(points)) for _ in range(4))
    for camera, (depth, opacity) in zip(cameras, maps, strict=True):
        distance, inside = _distance(points.astype(np.float64), camera, depth, opacity)
        says = inside & (distance > -1.0)
        hidden += inside & ~says
        is_near = says & (distance < FREE)
        near += is_near
        weight = np.where(says, np.where(is_near, 1.0, FREE_WEIGHT), 0.0)
        total += weight * distance
        count += weight
    free = (count - near) / FREE_WEIGHT
    away = np.where((hidden > 0) & (free <= LOOKED_THROUGH * (free + hidden)), -1.0, FREE)
    distances = np.where(near > 0, total / np.maximum(count, 1.0), away)
    return (distances * TRUNCATION).astype(np.float32)[:, None]


def _distance(
    points: np.ndarray, camera: PinholeCamera, depth: np.ndarray, opacity: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Truncated distance, -1 to 1, and whether the point is in the image; -1 means occluded."""
    pixels, z = camera.project(points)
    x, y = np.rint(np.clip(pixels, -1, [camera.width, camera.height])).astype(np.int64).T
    inside = (z > 0) & (x >= 0) & (y >= 0) & (x < camera.width) & (y < camera.height)
    column, row = np.where(inside, x, 0), np.where(inside, y, 0)
    is_surface = opacity[row, column] > SEEN
    distance = np.where(is_surface, (depth[row, column] - z) / TRUNCATION, FREE)
    return np.clip(distance, -1.0, 1.0), inside
