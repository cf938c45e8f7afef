"""Which part of the relief of a ground truth a mesh has. Working frame, lengths in radii. T vertices of the truth.

Along the normals of the smoothed ground truth, the heights above it of the ground truth and of the mesh are compared,
without waves longer than about SHORT, where cameras see the ground truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import trimesh
from scipy.sparse import csr_matrix, diags, identity
from scipy.sparse.linalg import LinearOperator, cg

from data.rays import PinholeCamera
from models.mesh.clean import vertex_normals
from models.mesh.remesh import adjacency, edges_of
from models.mesh.visibility import Visibility, lengths

SHORT, FINE, BASE = 0.1, 0.03, 0.2  # wavelengths: the longest of relief and of its fine part; of the smoothed surface
HIGHEST = 0.05  # a surface farther from the smooth one is another one
COMPARED, SEEN_BY = 20_000, 3  # vertices; cameras that see each of them
LEAST = 1e-4  # root of the mean square of the height, below which there is no relief


@dataclass(frozen=True)
class ReliefMetrics:
    """The relief of the mesh, relative to that of the ground truth."""

    relief_rms: float  # height of the ground truth, root of the mean square
    relief_correlation: float  # of both heights
    relief_gain: float  # regression of the height of the mesh on that of the ground truth: 1 for all of it
    relief_explained: float  # share of the variance that is not in the difference: negative if it is worse than none
    relief_correlation_fine: float  # likewise, of wavelengths below FINE
    relief_gain_fine: float


def relief_metrics(
    mesh: trimesh.Trimesh, truth: trimesh.Trimesh, cameras: Sequence[PinholeCamera]
) -> ReliefMetrics | None:
    """The relief of a mesh; None if the ground truth has none that cameras see."""
    vertices, faces = np.asarray(truth.vertices, np.float64), np.asarray(truth.faces)
    ends = vertices[edges_of(faces)]
    edge = float(lengths(ends[:, 0] - ends[:, 1]).mean())
    beside = adjacency(faces, len(vertices))
    smooth = trimesh.Trimesh(_smoothed(vertices, beside, BASE / edge), faces, process=False)
    normals = vertex_normals(smooth)
    heights = np.stack([_heights(one, np.asarray(smooth.vertices), normals) for one in (truth, mesh)], axis=1)
    rows = _seen(truth, cameras)
    rows = rows[np.isfinite(heights[rows]).all(axis=1)]
    heights[~np.isfinite(heights)] = 0.0
    relief, fine = ((heights - _smoothed(heights, beside, longest / edge))[rows] for longest in (SHORT, FINE))
    if len(rows) == 0 or relief[:, 0].std() < LEAST:
        return None
    return ReliefMetrics(*_compared(*relief.T), *_compared(*fine.T)[1:3])


def _compared(true: np.ndarray, height: np.ndarray) -> tuple[float, float, float, float]:
    """Root of the mean square of `true`, correlation, gain and explained share of `height`, each less its mean."""
    true, height = true - true.mean(), height - height.mean()
    power, common = float(np.mean(true**2)), float(np.mean(true * height))
    scale = max(np.sqrt(power * float(np.mean(height**2))), np.finfo(float).tiny)
    return np.sqrt(power), common / scale, common / power, 1.0 - float(np.mean((true - height) ** 2)) / power


def _smoothed(values: np.ndarray, beside: csr_matrix, wavelength: float) -> np.ndarray:
    """Values [T, C] of vertices without waves shorter than `wavelength`, in edges: two steps of implicit diffusion.

    Each halves the amplitude of that wavelength, so that a quarter is left.
    """
    count = np.maximum(np.asarray(beside.sum(axis=1)).ravel(), 1.0)
    # The umbrella operator takes (pi / wavelength)^2 of a wave on triangles with edges of length 1.
    strength = (wavelength / np.pi) ** 2
    lowered = strength * (diags(count) - beside)  # symmetric
    matrix = (diags(count) @ identity(len(count)) + lowered).tocsr()
    near = LinearOperator(matrix.shape, lambda x: x / ((1.0 + strength) * count))
    for _ in range(2):
        columns = [cg(matrix, count * column, x0=column, rtol=1e-5, maxiter=200, M=near)[0] for column in values.T]
        values = np.stack(columns, axis=1)
    return values


def _heights(mesh: trimesh.Trimesh, places: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """The height [T] of a mesh above places [T, 3] along unit normals, the highest of several; NaN without any."""
    tops = places + HIGHEST * normals
    heights = HIGHEST - Visibility(mesh, keeps=True).thickness(tops, normals)
    return np.where(np.abs(heights) < HIGHEST, heights, np.nan)


def _seen(truth: trimesh.Trimesh, cameras: Sequence[PinholeCamera]) -> np.ndarray:
    """Some vertices of the ground truth that SEEN_BY cameras see."""
    count = len(truth.vertices)
    rows = np.random.default_rng(0).choice(count, min(COMPARED, count), replace=False)
    points, normals, visibility = np.asarray(truth.vertices)[rows], vertex_normals(truth)[rows], Visibility(truth)
    seen = np.zeros(len(rows), int)
    for camera in cameras:
        shown = np.flatnonzero(camera.shows(*camera.project(points)))
        seen[shown] += visibility.sees(points[shown], normals[shown], camera.center)
    return rows[seen >= SEEN_BY]
