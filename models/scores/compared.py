"""A surface against ground truth. The working frame throughout: lengths are radii of the unit sphere."""

from __future__ import annotations

from dataclasses import dataclass

import igl
import numpy as np
import trimesh
from scipy.spatial import cKDTree

from models.scores.reference import MOST_POINTS, Reference
from models.surface.metrics import SAMPLES, sample_faces

# --tau where it is not given: the error beyond which a point counts as missed, a hundredth of the sphere's radius. That
# is two and a half cells of a 512^3 grid, so that extraction alone misses nothing, and the bound of the share of
# structure-from-motion points without a surface, so that both shares speak of the same error.
TAU = 0.01


@dataclass(frozen=True)
class SurfaceFigures:
    """How far a surface and its ground truth are apart; lengths in radii."""

    accuracy: float  # mean distance from the surface to the ground truth: what is extra or misplaced
    completeness: float  # mean distance from the ground truth to the surface: what is missing
    chamfer: float  # the mean of the two
    tau: float
    precision: float  # share of the surface within tau of the ground truth
    recall: float  # share of the ground truth within tau of the surface
    f_score: float  # their harmonic mean (Knapitsch et al., Tanks and Temples, ACM TOG 36, 2017)
    # Mean |cosine| of the normals of sampled points and of the triangles nearest to them, over both directions
    # (Mescheder et al., Occupancy networks, CVPR 2019); None where the ground truth has no triangles.
    normal_consistency: float | None


def against_truth(
    mesh: trimesh.Trimesh, truth: Reference, tau: float = TAU, samples: int = SAMPLES, seed: int = 0
) -> SurfaceFigures:
    """Both directions: `samples` area-uniform points of one surface to the nearest point of the other's triangles.

    From a ground truth of points alone every point is measured (MOST_POINTS at the most), and to it the nearest point.
    The same seed gives the same figures. Raises ValueError for a mesh without area.
    """
    generator = np.random.default_rng(seed)
    points, faces = sample_faces(mesh, samples, generator)
    other = truth.mesh
    if other is None:
        forth = cKDTree(truth.points).query(points)[0]
        back = _nearest(truth.spread(MOST_POINTS, generator), mesh)[0]
        agreement = None
    else:
        forth, there = _nearest(points, other)
        cosines = [_cosines(mesh, faces, other, there)]
        points, faces = sample_faces(other, samples, generator)
        back, there = _nearest(points, mesh)
        cosines.append(_cosines(other, faces, mesh, there))
        agreement = float(np.mean([part.mean() for part in cosines]))
    precision, recall = float(np.mean(forth <= tau)), float(np.mean(back <= tau))
    return SurfaceFigures(
        accuracy=float(forth.mean()),
        completeness=float(back.mean()),
        chamfer=0.5 * float(forth.mean() + back.mean()),
        tau=tau,
        precision=precision,
        recall=recall,
        f_score=2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0,
        normal_consistency=agreement,
    )


def _nearest(points: np.ndarray, mesh: trimesh.Trimesh) -> tuple[np.ndarray, np.ndarray]:
    """Distances [P] to the nearest point of the triangles of `mesh`, and which triangle [P] it lies on."""
    vertices = np.ascontiguousarray(mesh.vertices, dtype=np.float64)
    faces = np.ascontiguousarray(mesh.faces, dtype=np.int64)
    squared, there, _ = igl.point_mesh_squared_distance(np.ascontiguousarray(points, np.float64), vertices, faces)
    return np.sqrt(np.maximum(squared, 0.0)), there


def _cosines(mesh: trimesh.Trimesh, faces: np.ndarray, other: trimesh.Trimesh, there: np.ndarray) -> np.ndarray:
    """|cosine| between the normals of paired triangles [P]; pairs with one without area are left out."""
    first, second = _normals(mesh, faces), _normals(other, there)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    has_area = lengths > 0
    return np.abs(np.sum(first * second, axis=1)[has_area]) / lengths[has_area]


def _normals(mesh: trimesh.Trimesh, faces: np.ndarray) -> np.ndarray:
    """Normals [P, 3] of triangles, twice their areas long."""
    corners = np.asarray(mesh.vertices, np.float64)[np.asarray(mesh.faces)[faces]]
    return np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
