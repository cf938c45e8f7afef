"""Distances of a surface to ground truth and to held-out SfM points, in radii of the unit sphere (working frame).

P points.
"""

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
from models.results.ground_truth import MOST_POINTS, GroundTruth, nearest, point_to_mesh, sample_faces

SAMPLES = 100_000  # per direction; the mean of this many distances is accurate to about 0.3 % of their spread
# Default of --tau: a hundredth of the sphere's radius. It is two and a half cells of a 512^3 grid, above the extraction
# error, and equals the threshold for missing SfM points.
TAU = 0.01


@dataclass(frozen=True)
class SurfaceMetrics:
    """The distance of a surface and its ground truth; lengths in radii."""

    accuracy: float  # mean distance from the surface to the ground truth: superfluous or misplaced geometry
    completeness: float  # mean distance from the ground truth to the surface: missing geometry
    chamfer: float  # the mean of the two
    tau: float
    precision: float  # fraction of the surface within tau of the ground truth
    recall: float  # fraction of the ground truth within tau of the surface
    f_score: float  # their harmonic mean (Knapitsch et al., Tanks and Temples, ACM TOG 36, 2017)
    # Mean |cosine| of the normals of sampled points and nearest triangles, over both directions (Mescheder et al.,
    # Occupancy networks, CVPR 2019); None if the ground truth has no triangles.
    normal_consistency: float | None


@dataclass(frozen=True, eq=False)
class Pairs:
    """Points of one surface, each with the nearest point of the other."""

    distances: np.ndarray  # [S]
    # Of the normals of the two triangles, [S] or fewer: degenerate triangles are omitted. None without triangles.
    cosines: np.ndarray | None


def against_truth(
    mesh: trimesh.Trimesh, truth: GroundTruth, tau: float = TAU, samples: int = SAMPLES, seed: int = 0
) -> SurfaceMetrics:
    """Both directions: `samples` area-uniform points of one surface to the nearest point on the other's triangles.

    For a point cloud, all points (at most MOST_POINTS) are used, and distances to it are those to the nearest point.
    Equal seeds give equal metrics. Raises ValueError for a mesh without area.
    """
    generator = np.random.default_rng(seed)
    other = truth.mesh
    if other is not None:
        return figures(_one_way(mesh, other, samples, generator), _one_way(other, mesh, samples, generator), tau)
    points, _ = sample_faces(mesh, samples, generator)
    forth = cKDTree(truth.points).query(points)[0]
    back = point_to_mesh(truth.spread(MOST_POINTS, generator), mesh)
    return figures(Pairs(forth, None), Pairs(back, None), tau)


def figures(forth: Pairs, back: Pairs, tau: float) -> SurfaceMetrics:
    """The metrics from the distances of both directions."""
    accuracy, completeness = float(forth.distances.mean()), float(back.distances.mean())
    precision, recall = float(np.mean(forth.distances <= tau)), float(np.mean(back.distances <= tau))
    cosines = [pairs.cosines for pairs in (forth, back) if pairs.cosines is not None]
    return SurfaceMetrics(
        accuracy=accuracy,
        completeness=completeness,
        chamfer=0.5 * (accuracy + completeness),
        tau=tau,
        precision=precision,
        recall=recall,
        f_score=2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0,
        normal_consistency=float(np.mean([np.abs(part).mean() for part in cosines])) if cosines else None,
    )


def _one_way(mesh: trimesh.Trimesh, other: trimesh.Trimesh, samples: int, generator: np.random.Generator) -> Pairs:
    """From `samples` area-uniform points of `mesh` to `other`."""
    points, faces = sample_faces(mesh, samples, generator)
    distances, there = nearest(points, other)
    first, second = _normals(mesh, faces), _normals(other, there)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    has_area = lengths > 0
    return Pairs(distances, np.sum(first * second, axis=1)[has_area] / lengths[has_area])


def _normals(mesh: trimesh.Trimesh, faces: np.ndarray) -> np.ndarray:
    """Normals [P, 3] of triangles, of twice the length of their areas."""
    corners = np.asarray(mesh.vertices, np.float64)[np.asarray(mesh.faces)[faces]]
    return np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])


MISSING = 0.01  # radii: larger distances count as missing; as TAU
MOST_SCORED = 20_000  # largest number of measured points, randomly selected: quantiles are accurate to a per cent
IN_MASKS = 0.9  # fraction of the photographs that must show a point inside the mask: one mask may be wrong
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
    if len(xyz) > MOST_SCORED:
        xyz = np.random.default_rng(0).choice(xyz, MOST_SCORED, replace=False)
    scale = np.full((len(cameras), len(xyz)), np.nan, np.float32)
    inside = np.zeros(len(xyz), int)
    for index, camera in enumerate(cameras):
        pixels, depth = camera.project(xyz)
        shown = camera.shows(pixels, depth)
        scale[index, shown] = np.sqrt(abs(np.linalg.det(camera.intrinsics[:2, :2]))) / depth[shown]
        if masks is not None:
            x, y = np.rint(pixels[shown]).astype(int).T
            dilated = cv2.dilate(masks[index], np.ones((3, 3), np.uint8))  # by a pixel, for points on the outline
            inside[shown] += dilated[y, x] > MASK_HALF
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
