"""Distances of a mesh to ground truth, and to points on the object. Unit-sphere frame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trimesh

from data.errors import UserError
from data.readers import points as point_files
from models.evaluation.mesh_distance import point_to_mesh
from models.evaluation.surface_metrics import Pairs, both_ways, figures

NINE_TENTHS = 90.0  # percent


def read_points(path: Path) -> np.ndarray:
    """The points [P, 3] of a .ply; raises UserError for a file that holds none, or is damaged."""
    found = point_files.read_points(path)
    if found is None:
        raise UserError(f"{path}: holds no points; give a .ply with vertices")
    return found.xyz


def against_truth(mesh: trimesh.Trimesh, truth: trimesh.Trimesh, threshold: float, samples: int) -> dict[str, float]:
    """Chamfer distance, F-score at `threshold`, and the mean angle between the normals, degrees.

    As `models.evaluation.surface_metrics` has them, with `samples` points on either surface. Normals point outwards, so
    that a surface turned inside out has 180 degrees. The same meshes give the same figures. Raises ValueError for a
    mesh without area.
    """
    pairs = both_ways(mesh, truth, samples, np.random.default_rng(0))
    found = figures(*pairs, threshold)
    return {
        "chamfer": found.chamfer,
        "precision": found.precision,
        "recall": found.recall,
        "f_score": found.f_score,
        "normal_error": float(np.mean([_mean_angle(each) for each in pairs])),
    }


def from_points(mesh: trimesh.Trimesh, points: np.ndarray) -> dict[str, float]:
    """The median and the 90th percentile of the distances of points [P, 3] to the mesh."""
    return _quantiles(point_to_mesh(points, mesh))


def _quantiles(distances: np.ndarray) -> dict[str, float]:
    return {"points_median": float(np.median(distances)), "points_p90": float(np.percentile(distances, NINE_TENTHS))}


def _mean_angle(pairs: Pairs) -> float:
    """The mean angle in degrees."""
    return float(np.degrees(np.arccos(np.clip(pairs.cosines, -1.0, 1.0))).mean())
