"""Finish a mesh: move vertices onto the level set of the field, close holes for printing, simplify to a given error.

V vertices, F triangles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import igl
import numpy as np
import trimesh

from data.errors import UserError
from models.mesh.clean import decimated, face_areas, is_watertight

BISECTIONS = 12  # bisection steps for the number of triangles, accurate to a few per cent
FEWEST_TRIANGLES = 16  # triangles


@dataclass(frozen=True)
class Closed:
    """A watertight mesh: the given one with patches over its holes."""

    mesh: trimesh.Trimesh
    holes: int
    area: float  # of the patches, as a fraction of the area of `mesh`


def closed(mesh: trimesh.Trimesh) -> Closed:
    """Close each hole by a fan of triangles around the centre of its border; the border's vertices stay.

    Non-manifold edges, which have more than two triangles, are split first (libigl). Raises UserError if the result
    is not watertight.
    """
    if is_watertight(mesh):
        return Closed(mesh, 0, 0.0)
    vertices, faces, source = igl.split_nonmanifold(
        np.asarray(mesh.vertices, float), np.ascontiguousarray(mesh.faces, dtype=np.int64)
    )
    count = len(vertices)
    joined, loops = np.arange(count), []
    for loop in igl.boundary_loop_all(faces):
        simple, same = _simple(loop, source)
        joined[list(same)] = list(same.values())
        loops += simple
    faces = joined[faces]
    edges = np.concatenate([faces[:, (k, (k + 1) % 3)] @ [count, 1] for k in range(3)])  # one number per directed edge
    is_forth = np.isin([loop[0] * count + loop[1] for loop in loops], edges)
    fans = []
    for number, (loop, forth) in enumerate(zip(loops, is_forth, strict=True)):
        begin, end = loop, np.roll(loop, -1)
        sides = (end, begin) if forth else (begin, end)  # a fan has the border's edges in the other direction
        fans.append(np.stack([*sides, np.full(len(loop), count + number)], axis=1))
    centres = [_centre(vertices[loop])[None] for loop in loops]
    patched = trimesh.Trimesh(np.concatenate([vertices, *centres]), np.concatenate([faces, *fans]), process=False)
    if not is_watertight(patched):
        raise UserError(
            "--watertight: the mesh has edges that cannot be closed; add --clean largest, or change --resolution"
        )
    areas = face_areas(patched)
    return Closed(patched, len(loops), float(areas[len(faces) :].sum() / areas.sum()))


def _simple(loop: Sequence[int], source: np.ndarray) -> tuple[list[np.ndarray], dict[int, int]]:
    """Split a border at vertices that it visits several times; also returns the copies of vertices to merge afterwards.

    With one patch over all parts, an edge from such a vertex to the centre of the patch would have four triangles in
    files without indices, such as STL. source: [V], the original vertex of each copy.
    """
    parts, same, first, path = [], {}, dict[int, int](), list[int]()
    for vertex in loop:
        place = int(source[vertex])
        if place in first:
            same[vertex] = earlier = path[start := first[place]]
            parts.append(np.array(path[start:]))
            for visited in path[start:]:
                del first[int(source[visited])]
            path = path[:start]
            vertex = earlier
        first[place] = len(path)
        path.append(vertex)
    return [part for part in [*parts, np.array(path)] if len(part) > 2], same


def _centre(border: np.ndarray) -> np.ndarray:
    """The centre [3] of a closed polygon [N, 3], weighted by the lengths of its edges."""
    following = np.roll(border, -1, axis=0)
    lengths = np.linalg.norm(following - border, axis=1)
    total = lengths.sum()
    return border[0] if total == 0.0 else (lengths[:, None] * (border + following) / 2.0).sum(axis=0) / total


def simplified(mesh: trimesh.Trimesh, error: float) -> tuple[trimesh.Trimesh, float]:
    """The mesh with about the fewest triangles whose distance to `mesh` is at most `error`, and the distance reached.

    By bisection over the number of triangles of `decimated`; `mesh` itself if no simplified one is close enough.
    """
    low, high, best, reached = FEWEST_TRIANGLES, len(mesh.faces), mesh, 0.0
    for _ in range(BISECTIONS):
        if high - low < 0.02 * high:
            break
        count = round(np.sqrt(low * high))
        thin = decimated(mesh, count)
        distance = 0.0  # the largest from a vertex of one mesh to the surface of the other
        for points, other in ((mesh, thin), (thin, mesh)):
            surface = np.asarray(other.vertices, float), np.asarray(other.faces, np.int64)
            squared = igl.point_mesh_squared_distance(np.asarray(points.vertices, float), *surface)[0]
            distance = max(distance, float(np.sqrt(squared.max())))
        if distance <= error:
            high, best, reached = count, thin, distance
        else:
            low = count
    return best, reached


NEWTON_ROUNDS = 3  # Newton iterations; each doubles the correct digits, of which interpolation gives two or three
CLOSE_ENOUGH = 1e-4  # of the reach: a vertex within this distance is not moved further
FLAT_GRADIENT = 1e-6  # the direction of smaller gradients is unreliable

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
    at, (value, slope) = start.copy(), _evaluated(gradient, start, threshold)
    before = np.abs(value) / _steepness(slope)
    away = before.copy()
    for _ in range(NEWTON_ROUNDS):
        moving = np.flatnonzero((away > CLOSE_ENOUGH * reach) & (np.linalg.norm(slope, axis=1) > FLAT_GRADIENT))
        if len(moving) == 0:
            break
        step = -(value[moving] / _steepness(slope[moving]) ** 2)[:, None] * slope[moving]
        away_from_start = at[moving] + step - start[moving]
        length = np.linalg.norm(away_from_start, axis=1, keepdims=True)
        target = start[moving] + away_from_start * np.minimum(1.0, reach / np.maximum(length, np.finfo(float).tiny))
        new_value, new_slope = _evaluated(gradient, target, threshold)
        better = np.abs(new_value) < np.abs(value[moving])
        rows = moving[better]
        at[rows], value[rows], slope[rows] = target[better], new_value[better], new_slope[better]
        away = np.zeros(len(at))
        away[rows] = np.abs(value[rows]) / _steepness(slope[rows])
    after = np.abs(value) / _steepness(slope)
    normals = np.where(
        np.linalg.norm(slope, axis=1, keepdims=True) > FLAT_GRADIENT, slope / _steepness(slope)[:, None], 0.0
    )
    return at, normals.astype(np.float32), before, after


def _evaluated(gradient: Gradient, points: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Values [P], zero on the surface, and gradients [P, 3], both float64."""
    value, slope = gradient(points.astype(np.float32))
    return value.reshape(-1).astype(np.float64) + threshold, slope.astype(np.float64)


def _steepness(slope: np.ndarray) -> np.ndarray:
    """The norm of gradients [P, 3], at least FLAT_GRADIENT."""
    return np.maximum(np.linalg.norm(slope, axis=1), FLAT_GRADIENT)
