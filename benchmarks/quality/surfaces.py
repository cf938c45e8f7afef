"""How far a mesh is from the ground truth, and from points that are known to lie on the object. Unit-sphere frame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trimesh

from data.errors import UserError
from data.io.geometry_file import GeometryError, load_geometry
from models.surface.metrics import SAMPLES, nearest, sample_faces

NINE_TENTHS = 90.0  # percent


def read_points(path: Path) -> np.ndarray:
    """The points [P, 3] of a .ply; raises UserError for a file that holds none, or none that are finite."""
    try:
        cloud = load_geometry(path.read_bytes(), "ply")
    except (GeometryError, OSError) as error:
        raise UserError(f"{path}: cannot be read as points ({error}); give a whole .ply file") from error
    points = np.asarray(getattr(cloud, "vertices", ()), np.float64)
    if points.ndim != 2 or len(points) == 0 or not np.isfinite(points).all():
        raise UserError(f"{path}: holds no finite points; give a .ply with vertices")
    return points


def against_truth(
    mesh: trimesh.Trimesh, truth: trimesh.Trimesh, threshold: float, samples: int = SAMPLES
) -> dict[str, float]:
    """Chamfer distance, F-score at `threshold`, and the mean angle between the normals, degrees.

    `samples` points on either surface, each with the nearest point of the other's triangles. The Chamfer distance and
    the angle are the means of both directions' means; normals point outwards, so that a surface turned inside out has
    180 degrees. The F-score is the harmonic mean of precision, the share of the mesh that is nearer than `threshold` to
    the truth, and recall, the share of the truth that is as near to the mesh (Knapitsch et al., "Tanks and Temples",
    TOG 36, 2017). The same meshes give the same figures. Raises ValueError for a mesh without area.
    """
    generator = np.random.default_rng(0)
    pairs = [_one_way(*pair, samples, generator) for pair in ((mesh, truth), (truth, mesh))]
    precision, recall = (float((distance < threshold).mean()) for distance, _ in pairs)
    both = precision + recall
    return {
        "chamfer": 0.5 * sum(float(distance.mean()) for distance, _ in pairs),
        "precision": precision,
        "recall": recall,
        "f_score": 2.0 * precision * recall / both if both > 0 else 0.0,
        "normal_error": 0.5 * sum(float(angle.mean()) for _, angle in pairs),
    }


def from_points(mesh: trimesh.Trimesh, points: np.ndarray) -> dict[str, float]:
    """The median and nine tenths of the distances of points [P, 3] to the mesh."""
    distance, _ = nearest(points, mesh)
    return {"points_median": float(np.median(distance)), "points_p90": float(np.percentile(distance, NINE_TENTHS))}


def _one_way(
    start: trimesh.Trimesh, goal: trimesh.Trimesh, samples: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Distances [S] of points of one surface to the other, and the angles between the normals there in degrees.

    A triangle without area, which may be the nearest, has no normal: its angles are left out.
    """
    points, own = sample_faces(start, samples, generator)
    distance, other = nearest(points, goal)
    here, there = _normals(start)[own], _normals(goal)[other]
    has_normals = here.any(axis=1) & there.any(axis=1)
    cosine = (here * there).sum(axis=1)[has_normals]
    return distance, np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))


def _normals(mesh: trimesh.Trimesh) -> np.ndarray:
    """Unit normals [F, 3] of the faces; 0 for those without area."""
    corners = np.asarray(mesh.vertices, np.float64)[mesh.faces]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    return np.divide(normal, length, out=np.zeros_like(normal), where=length > 0)
