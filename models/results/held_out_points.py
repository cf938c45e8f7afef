"""Distances of held-out SfM points to the surface, in the working frame. P points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import trimesh
from scipy.spatial import cKDTree

from data.parsed_scene import MASK_HALF, SparsePoints
from data.rays import PinholeCamera
from data.scenes.sparse import well_supported
from models.results.ground_truth import point_to_mesh

MISSING = 0.01  # radii: larger distances count as missing; see surface_metrics.TAU
MOST_POINTS = 20_000  # largest number of measured points, randomly selected: quantiles are accurate to a per cent
IN_MASKS = 0.9  # fraction of the photographs that must show a point inside the mask: one mask may be wrong
A_PIXEL = np.ones((3, 3), np.uint8)  # tolerance in pixels for points on the outline
SAME = 1e-4  # radii: closer points are duplicates, because files contain float32


@dataclass(frozen=True, eq=False)
class HeldOutPoints:
    """Points on the object."""

    source: str  # file or scene, for messages
    xyz: np.ndarray  # [P, 3]
    pixels: np.ndarray  # [P], pixels per radius at the point, median over the photographs
    given: int  # number of given points


@dataclass(frozen=True)
class PointMetrics:
    """Distances of points to the nearest point on the triangles of the surface."""

    points_from: str
    points_given: int
    points_scored: int
    points_median: float  # radii
    points_p90: float  # radii, the 90th percentile
    points_median_px: float  # pixels: the projected distance, parallel to the image plane
    points_p90_px: float
    points_missing: float  # fraction of the points farther than MISSING from the surface


def held_out_points(
    points: SparsePoints, source: str, cameras: Sequence[PinholeCamera], masks: Sequence[np.ndarray] | None
) -> HeldOutPoints:
    """Points in the unit sphere that are well supported and visible in a photograph; may be empty.

    masks: uint8 [H, W] of each camera, if they define the object; else None.
    """
    given = len(points.xyz)
    xyz = well_supported(points)
    xyz = xyz[np.linalg.norm(xyz, axis=1) <= 1.0]
    if len(xyz) > MOST_POINTS:
        xyz = np.random.default_rng(0).choice(xyz, MOST_POINTS, replace=False)
    scale = np.full((len(cameras), len(xyz)), np.nan, np.float32)
    inside = np.zeros(len(xyz), int)
    for index, camera in enumerate(cameras):
        pixels, depth = camera.project(xyz)
        shown = camera.shows(pixels, depth)
        scale[index, shown] = np.sqrt(abs(np.linalg.det(camera.intrinsics[:2, :2]))) / depth[shown]
        if masks is not None:
            x, y = np.rint(pixels[shown]).astype(int).T
            inside[shown] += cv2.dilate(masks[index], A_PIXEL)[y, x] > MASK_HALF
    views = np.isfinite(scale).sum(axis=0)
    kept = views > 0
    if masks is not None:
        kept &= inside >= IN_MASKS * views
    return HeldOutPoints(source, xyz[kept], np.nanmedian(scale[:, kept], axis=0).astype(np.float64), given)


def others(points: SparsePoints, trained_on: SparsePoints | None) -> SparsePoints:
    """The points that were not used in training; all points if none were used."""
    if trained_on is None or len(trained_on.xyz) == 0:
        return points

    return points.at(cKDTree(trained_on.xyz).query(points.xyz)[0] > SAME)


def point_metrics(held_out: HeldOutPoints, mesh: trimesh.Trimesh) -> PointMetrics | None:
    """The distances of the points to the surface; None without points."""
    if len(held_out.xyz) == 0:
        return None
    distance = point_to_mesh(held_out.xyz, mesh)
    pixels = distance * held_out.pixels
    return PointMetrics(
        points_from=held_out.source,
        points_given=held_out.given,
        points_scored=len(distance),
        points_median=float(np.median(distance)),
        points_p90=float(np.quantile(distance, 0.9)),
        points_median_px=float(np.median(pixels)),
        points_p90_px=float(np.quantile(pixels, 0.9)),
        points_missing=float(np.mean(distance > MISSING)),
    )
