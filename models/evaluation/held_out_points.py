"""Distances of held-out SfM points, which took no part in the training, to the surface. The working frame; P points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import trimesh
from scipy.spatial import cKDTree

from data.parsed_scene import MASK_HALF, SparsePoints
from data.roi.sparse import well_supported
from models.evaluation.mesh_distance import point_to_mesh
from models.surface.visibility import Camera, project

MISSING = 0.01  # of the sphere's radius: a point farther off has no surface; see compared.TAU
MOST_POINTS = 20_000  # measured, drawn by chance: quantiles of more are the same to a per cent
IN_MASKS = 0.9  # of the photographs that show a point must show it inside the mask: one mask may be wrong
A_PIXEL = np.ones((3, 3), np.uint8)  # that a point on the outline may lie off the mask
SAME = 1e-4  # radii: points nearer than that are one, through files in float32


@dataclass(frozen=True, eq=False)
class HeldOutPoints:
    """Points that lie on what was to be reconstructed."""

    source: str  # where they are from
    xyz: np.ndarray  # [P, 3]
    pixels: np.ndarray  # [P], how many pixels a length of one radius covers there, the median of the photographs
    given: int  # points that there were


@dataclass(frozen=True)
class PointMetrics:
    """Distances of points to the nearest point of the surface's triangles."""

    points_from: str
    points_given: int
    points_scored: int
    points_median: float  # radii
    points_p90: float  # radii, the 90th percentile
    points_median_px: float  # pixels that the distance covers where the point is seen, at right angles
    points_p90_px: float
    points_missing: float  # share farther than MISSING from any surface


def held_out_points(
    points: SparsePoints, source: str, cameras: Sequence[Camera], masks: Sequence[np.ndarray] | None
) -> HeldOutPoints:
    """Those in the unit sphere, well supported, and shown by a photograph; it may be none.

    masks: uint8 [H, W] of each camera, where what lies off them is no part of the object; else None.
    """
    given = len(points.xyz)
    xyz = well_supported(points)
    xyz = xyz[np.linalg.norm(xyz, axis=1) <= 1.0]
    if len(xyz) > MOST_POINTS:
        xyz = np.random.default_rng(0).choice(xyz, MOST_POINTS, replace=False)
    scale = np.full((len(cameras), len(xyz)), np.nan, np.float32)
    inside = np.zeros(len(xyz), int)
    for index, camera in enumerate(cameras):
        pixels, depth = project(xyz, camera)
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
    """The points that did not take part in training; all where none did."""
    if trained_on is None or len(trained_on.xyz) == 0:
        return points

    return points.at(cKDTree(trained_on.xyz).query(points.xyz)[0] > SAME)


def point_metrics(held_out: HeldOutPoints, mesh: trimesh.Trimesh) -> PointMetrics | None:
    """How far the points lie from the surface; None where there are none."""
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
