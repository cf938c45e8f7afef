"""Extraction from a dense grid, as published: the reference of models.mesh.sparse; and fields with known surfaces.

N is the resolution: grid points per axis, including the corners of the box. P is a number of points. "Published" is
https://github.com/Totoro97/NeuS at commit 6e0a230, models/renderer.py (extract_fields, extract_geometry). Fields are as
models.mesh marches them: P points float32 [P, 3] -> [P].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import mcubes
import numpy as np
import trimesh

from data.errors import UserError
from models.mesh.extraction import SMALLEST_RESOLUTION, EmptySurfaceError, no_crossing


def _unchanged(chunks: Iterable[int]) -> Iterable[int]:
    return chunks


def sample_grid(
    sdf_fn: Callable[[np.ndarray], np.ndarray],
    bound_min: np.ndarray,
    bound_max: np.ndarray,
    resolution: int,
    chunk: int,
    progress: Callable[[Iterable[int]], Iterable[int]] = _unchanged,
) -> np.ndarray:
    """The SDF, float32 [N, N, N] indexed [x, y, z], on the grid from `bound_min` [3] to `bound_max` [3] inclusive.

    `sdf_fn` takes points float32 [P, 3] in the working frame and returns [P] (or [P, 1]); it gets at most `chunk`
    points at a time, so that memory beyond the grid stays bounded, and each point alone decides its value. `progress`
    wraps the sequence of chunk starts (tqdm, say). Raises UserError for a resolution below 2 or a chunk below 1.
    """
    if resolution < SMALLEST_RESOLUTION:
        raise UserError(f"--resolution {resolution}: a mesh needs at least {SMALLEST_RESOLUTION} grid points per axis")
    if chunk < 1:
        raise UserError(f"grid chunk {chunk}: at least one point must be evaluated at a time")
    axes = [
        np.linspace(low, high, resolution, dtype=np.float32) for low, high in zip(bound_min, bound_max, strict=True)
    ]
    values = np.zeros(resolution**3, dtype=np.float32)
    for start in progress(range(0, len(values), chunk)):
        stop = min(start + chunk, len(values))
        places = np.unravel_index(np.arange(start, stop), (resolution,) * 3)
        points = np.stack([axis[place] for axis, place in zip(axes, places, strict=True)], axis=-1)
        values[start:stop] = np.asarray(sdf_fn(points)).reshape(-1)
    return values.reshape((resolution,) * 3)


def marching_cubes(
    grid: np.ndarray,
    threshold: float,
    bound_min: np.ndarray,
    bound_max: np.ndarray,
    quantity: str = "the signed distance",
) -> trimesh.Trimesh:
    """The surface in an SDF `grid` [N, N, N] sampled from `bound_min` [3] to `bound_max` [3]; same frame as the box.

    As published, what is marched is -sdf at `threshold`: a threshold above 0 moves the surface inwards. Faces look
    outwards, because the marched field grows inwards. `quantity` is what messages call the field. Raises
    EmptySurfaceError where nothing crosses the threshold.
    """
    vertices, faces = mcubes.marching_cubes(-grid, threshold)
    if len(faces) == 0:
        raise EmptySurfaceError(no_crossing(float(grid.min()), float(grid.max()), threshold, quantity))
    low, high = np.asarray(bound_min, dtype=np.float64), np.asarray(bound_max, dtype=np.float64)
    vertices = vertices / (np.array(grid.shape) - 1.0) * (high - low) + low
    return trimesh.Trimesh(vertices, faces.astype(np.int64), process=False)


BOX = (np.full(3, -1.0), np.full(3, 1.0))


@dataclass
class Analytic:
    """A `LevelSet` that counts its queries and can fail after some."""

    function: object
    bounded: bool = True
    quantity: str = "the field"
    evened: object = None
    most: int | None = None
    queries: int = 0

    def outward(self, points):
        self.queries += len(points)
        if self.most is not None and self.queries > self.most:
            raise KeyboardInterrupt
        return self.function(points)[:, None]


def sphere(points, center=(0.1, 0.05, -0.02), radius=0.7):
    return np.linalg.norm(points - np.float32(center), axis=1) - np.float32(radius)


def torus(points):
    return np.hypot(np.linalg.norm(points[:, :2], axis=1) - 0.6, points[:, 2]) - 0.2


def thin(points):
    """A wire, a sheet thinner than a coarse cell, and a bead by itself."""
    wire = np.maximum(np.hypot(points[:, 0] - 0.2, points[:, 1] - 0.1) - 0.015, np.abs(points[:, 2]) - 0.8)
    sheet = np.max(np.abs(points + np.float32([0.3, 0.0, 0.0])) - np.float32([0.012, 0.5, 0.5]), axis=1)
    return np.minimum(np.minimum(wire, sheet), sphere(points, (0.6, 0.6, 0.6), 0.03))


def cut_off(points):
    """A distance that is correct only up to 0.05."""
    return np.clip(torus(points), -0.05, 0.05)


def minus_density(points):
    """Minus a density: 30 inside, almost 0 outside."""
    return -30.0 / (1.0 + np.exp(np.minimum(60.0 * torus(points), 80.0)))


def steep_in_a_corner(points):
    """A sphere, and a spike between the samples of the coarse lattice, much steeper than a distance."""
    spike = np.linalg.norm(points - np.float32([0.7071, 0.7071, 0.7071]), axis=1)
    return np.minimum(sphere(points, (-0.3, -0.3, -0.3), 0.4), 12.0 * (spike - 0.05))
