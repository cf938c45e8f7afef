"""Samples along rays outside the unit sphere, in occupied cells of a grid over contracted space. Not differentiable.

The candidate depths of a ray are `candidates`. Those in cells that may be seen are its samples, at contracted points,
packed as in `volrend`: of the first rays that fit the budget. A sample between camera and sphere is in a cell of the
state BEFORE; another one is in a cell of the state BEHIND or BEFORE, and its ray sees what is behind the region.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.rays import Rays
from models.machine.backend import jt
from models.ops.march import PackedSamples, compact, native_samples
from models.ops.sizes import BACKGROUND_RADIUS
from models.ops.source import Kernel, Source
from models.structs import Var

BEHIND, BEFORE = 1, 2  # states of cells; 0: no samples
LEAST_SQUARE = 1e-6  # of the distance of a ray from the origin


@dataclass(frozen=True)
class Outside:
    """The layout of `outside_samples`."""

    cells: int  # along an edge of the cube
    samples: int  # S, the maximum number of samples
    section: np.float64  # distance of candidates, as a fraction of their distance from the origin
    near_plane: np.float64  # smallest depth, working-frame units


_CONSTANTS = {"LEAST_SQUARE": LEAST_SQUARE, "BACKGROUND_RADIUS": BACKGROUND_RADIUS}
SOURCE = Source.of("outside.h", Outside, BEHIND=BEHIND, BEFORE=BEFORE, **_CONSTANTS)


def candidates(
    rays: Rays, jitter: np.ndarray, section: float, near_plane: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Depths along rays outside the unit sphere, from their near plane to BACKGROUND_RADIUS: float32 [R, K], ascending;
    which of them exist, and which are between camera and sphere, bool [R, K].

    Let m be the depth closest to the origin, and b its distance from the origin. The depth m + b sinh(u) has distance b
    cosh(u) from the origin, so equal steps in u are equal fractions of the distance. jitter [R, 1] in [0, 1) shifts the
    depths, in steps.
    """
    origins, directions = rays.origins.astype(np.float64), rays.directions.astype(np.float64)
    middle = -np.einsum("ri,ri->r", origins, directions)
    apart = np.sqrt(np.maximum(np.einsum("ri,ri->r", origins, origins) - middle**2, LEAST_SQUARE))
    half = np.sqrt(np.maximum(1.0 - apart**2, 0.0))

    def steps(depth: np.ndarray) -> np.ndarray:
        return np.arcsinh((depth - middle) / apart) / section

    start = steps(np.full(len(rays), near_plane))
    enters, leaves, ends = steps(middle - half), steps(middle + half), steps(middle + BACKGROUND_RADIUS)
    before = np.maximum(0, np.floor(enters - start)).astype(np.int64)
    from_there = np.maximum(leaves, start)
    behind = np.maximum(0, np.floor(ends - from_there)).astype(np.int64)
    number = np.arange(int((before + behind).max(initial=0)))[None]
    is_before = number < before[:, None]
    at = np.where(is_before, start[:, None] + number, from_there[:, None] + number - before[:, None]) + jitter
    depths = middle[:, None] + apart[:, None] * np.sinh(at * section)
    return depths.astype(np.float32), number < (before + behind)[:, None], is_before


def contracted(points: np.ndarray) -> np.ndarray:
    """Positions [P, 3] in the grid's cube of points outside the unit sphere [P, 3]; float32."""
    radius = np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0)
    return (points * ((1.0 - 0.5 / radius) / radius)).astype(np.float32)


def expanded(places: np.ndarray) -> np.ndarray:
    """The inverse of `contracted`, float64; places [P, 3] beyond BACKGROUND_RADIUS are moved to this distance."""
    radius = np.linalg.norm(places, axis=1, keepdims=True)
    away = np.minimum(0.5 / np.maximum(1.0 - radius, 0.5 / BACKGROUND_RADIUS), BACKGROUND_RADIUS)
    return places * (away / np.maximum(radius, 1e-6))


def occupied(
    rays: Rays, jitter: np.ndarray, states: np.ndarray, section: float, near_plane: float
) -> tuple[PackedSamples, Var]:
    """All candidates in cells that may be seen, and which are between camera and sphere, bool [N]; N is at least 1."""
    every, exist, is_before = candidates(rays, jitter, section, near_plane)
    ray, place = np.nonzero(exist)
    depths = every[ray, place]
    points = contracted(rays.origins[ray] + rays.directions[ray] * depths[:, None])
    count = len(states)
    x, y, z = np.clip(((points + 1) * (0.5 * count)).astype(np.int32), 0, count - 1).T
    kept = np.flatnonzero(states[x, y, z] >= np.where(is_before[ray, place], BEFORE, BEHIND))
    offsets = np.searchsorted(ray[kept], np.arange(len(rays) + 1)).astype(np.int32)
    own = ray[kept]
    is_before = is_before[own, place[kept]]
    arrays = [own.astype(np.int32), depths[kept, None], points[kept], rays.directions[own], is_before]
    if not len(kept):  # operations need a row: a sample of no ray
        arrays = [np.zeros((1, *values.shape[1:]), values.dtype) for values in arrays]
    *samples, is_before = map(jt.array, arrays)
    return PackedSamples(jt.array(offsets), jt.array(np.array([len(rays)], np.int32)), *samples), is_before


def _reference(rays: Rays, jitter: np.ndarray | Var, transmits: Var, states: Var, sizes: Outside) -> PackedSamples:
    """The samples of R rays, with at most `sizes.samples` rows.

    Args:
        rays, jitter: arrays or Vars; jitter [R, 1] in [0, 1).
        transmits: bool [R], which rays see what is behind the region.
        states: uint8 [N, N, N].
    """
    *values, shifts = map(np.asarray, (rays.origins, rays.directions, rays.near, rays.far, jitter))
    samples, is_before = occupied(Rays(*values), shifts, states.numpy(), float(sizes.section), float(sizes.near_plane))
    most = min(sizes.samples, samples.rays.shape[0])
    return compact(samples, is_before.logical_or(transmits[samples.rays]), most)


def _native(rays: Rays, jitter: np.ndarray | Var, transmits: Var, states: Var, sizes: Outside) -> PackedSamples:
    """One operation, with `sizes.samples` rows; those that are not used are zero."""
    inputs = [jt.array(value) for value in (rays.origins, rays.directions, jitter)]
    return native_samples(SOURCE, "outside_samples", sizes, len(rays), [*inputs, transmits, states])


outside_samples = Kernel(_reference, cuda=_native)
