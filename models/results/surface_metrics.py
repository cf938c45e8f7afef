"""Compare a surface with ground truth, in the working frame: lengths are radii of the unit sphere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import trimesh
from scipy.spatial import cKDTree

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
        return figures(*both_ways(mesh, other, samples, generator), tau)
    points, _ = sample_faces(mesh, samples, generator)
    forth = cKDTree(truth.points).query(points)[0]
    back = point_to_mesh(truth.spread(MOST_POINTS, generator), mesh)
    return figures(Pairs(forth, None), Pairs(back, None), tau)


def both_ways(
    mesh: trimesh.Trimesh, other: trimesh.Trimesh, samples: int, generator: np.random.Generator
) -> tuple[Pairs, Pairs]:
    """From `samples` area-uniform points of `mesh` to `other`, and back; raises ValueError for a mesh without area."""
    return _one_way(mesh, other, samples, generator), _one_way(other, mesh, samples, generator)


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
    """From `mesh` to `other`."""
    points, faces = sample_faces(mesh, samples, generator)
    distances, there = nearest(points, other)
    return Pairs(distances, _cosines(mesh, faces, other, there))


def _cosines(mesh: trimesh.Trimesh, faces: np.ndarray, other: trimesh.Trimesh, there: np.ndarray) -> np.ndarray:
    """Cosine between the normals of paired triangles [P]; pairs with a degenerate one are omitted."""
    first, second = _normals(mesh, faces), _normals(other, there)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    has_area = lengths > 0
    return np.sum(first * second, axis=1)[has_area] / lengths[has_area]


def _normals(mesh: trimesh.Trimesh, faces: np.ndarray) -> np.ndarray:
    """Normals [P, 3] of triangles, of twice the length of their areas."""
    corners = np.asarray(mesh.vertices, np.float64)[np.asarray(mesh.faces)[faces]]
    return np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
