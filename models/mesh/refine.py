"""Move vertices onto the level set along the gradient of the field."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

ROUNDS = 3  # Newton iterations; each doubles the correct digits, of which interpolation gives two or three
CLOSE = 1e-4  # of the reach: a vertex within this distance is not moved further
FLAT = 1e-6  # the direction of smaller gradients is unreliable

# Points float32 [P, 3] -> values [P, 1], slopes [P, 3].
Gradient = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Refined:
    """Vertices after Newton's method."""

    vertices: np.ndarray  # float64 [V, 3]
    normals: np.ndarray  # float32 [V, 3], unit, outwards; zero where the field is flat
    before: float  # mean distance from the level set, estimated from value and gradient, units of the frame
    after: float


def onto_level(
    vertices: np.ndarray,
    gradient: Gradient,
    threshold: float,
    reach: float,
    chunk: int,
    progress: Callable[[Iterable], Iterable],
) -> Refined:
    """Move vertices [V, 3] to the level set of minus the field at `threshold`, none by more than `reach`.

    Newton's method along the gradient. A step that does not bring a vertex closer is rejected. `gradient` is called
    with at most `chunk` points.
    """
    vertices = np.array(vertices, np.float64)
    moved, normals = vertices.copy(), np.empty((len(vertices), 3), np.float32)
    before, after = np.empty(len(vertices)), np.empty(len(vertices))
    for start in progress(range(0, len(vertices), chunk)):
        part = slice(start, start + chunk)
        moved[part], normals[part], before[part], after[part] = _part(vertices[part], gradient, threshold, reach)
    return Refined(moved, normals, float(before.mean()), float(after.mean()))


def _part(
    start: np.ndarray, gradient: Gradient, threshold: float, reach: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The new positions of some vertices, their normals, and their distances before and after."""
    at, (value, slope) = start.copy(), _ask(gradient, start, threshold)
    before = np.abs(value) / _steepness(slope)
    away = before.copy()
    for _ in range(ROUNDS):
        moving = np.flatnonzero((away > CLOSE * reach) & (np.linalg.norm(slope, axis=1) > FLAT))
        if len(moving) == 0:
            break
        step = -(value[moving] / _steepness(slope[moving]) ** 2)[:, None] * slope[moving]
        target = start[moving] + _shortened(at[moving] + step - start[moving], reach)
        new_value, new_slope = _ask(gradient, target, threshold)
        better = np.abs(new_value) < np.abs(value[moving])
        taken = moving[better]
        at[taken], value[taken], slope[taken] = target[better], new_value[better], new_slope[better]
        away = np.zeros(len(at))
        away[taken] = np.abs(value[taken]) / _steepness(slope[taken])
    after = np.abs(value) / _steepness(slope)
    normals = np.where(np.linalg.norm(slope, axis=1, keepdims=True) > FLAT, slope / _steepness(slope)[:, None], 0.0)
    return at, normals.astype(np.float32), before, after


def _ask(gradient: Gradient, points: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Values [P], zero on the surface, and gradients [P, 3], both float64."""
    value, slope = gradient(points.astype(np.float32))
    return value.reshape(-1).astype(np.float64) + threshold, slope.astype(np.float64)


def _steepness(slope: np.ndarray) -> np.ndarray:
    """The norm of gradients [P, 3], at least FLAT."""
    return np.maximum(np.linalg.norm(slope, axis=1), FLAT)


def _shortened(step: np.ndarray, reach: float) -> np.ndarray:
    """Steps [P, 3], limited to the length `reach`."""
    length = np.linalg.norm(step, axis=1, keepdims=True)
    return step * np.minimum(1.0, reach / np.maximum(length, np.finfo(float).tiny))
