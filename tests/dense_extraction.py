"""Extraction from a dense grid, as published: the reference of models.surface.sparse in tests and benchmarks.

N is the resolution: grid points per axis, including the corners of the box. P is a number of points. "Published" is
https://github.com/Totoro97/NeuS at commit 6e0a230, models/renderer.py (extract_fields, extract_geometry).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import mcubes
import numpy as np
import trimesh

from data.errors import UserError
from models.surface.extraction import SMALLEST_RESOLUTION, EmptySurfaceError, no_crossing, require_crossing


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
    require_crossing(float(grid.min()), float(grid.max()), threshold, quantity)
    vertices, faces = mcubes.marching_cubes(-grid, threshold)
    if len(faces) == 0:
        raise EmptySurfaceError(no_crossing(float(grid.min()), float(grid.max()), threshold, quantity))
    low, high = np.asarray(bound_min, dtype=np.float64), np.asarray(bound_max, dtype=np.float64)
    vertices = vertices / (np.array(grid.shape) - 1.0) * (high - low) + low
    return trimesh.Trimesh(vertices, faces.astype(np.int64), process=False)
