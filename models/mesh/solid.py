"""Close the holes of a mesh for printing, and simplify it to a given error. V vertices, F triangles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import igl
import numpy as np
import trimesh

from data.errors import UserError
from models.mesh.clean import decimated, face_areas, is_watertight

ROUNDS = 12  # bisection steps for the number of triangles, accurate to a few per cent
FEWEST = 16  # triangles


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
    found = trimesh.Trimesh(np.concatenate([vertices, *centres]), np.concatenate([faces, *fans]), process=False)
    if not is_watertight(found):
        raise UserError(
            "--watertight: the mesh has edges that cannot be closed; add --clean largest, or change --resolution"
        )
    areas = face_areas(found)
    return Closed(found, len(loops), float(areas[len(faces) :].sum() / areas.sum()))


def _simple(loop: Sequence[int], source: np.ndarray) -> tuple[list[np.ndarray], dict[int, int]]:
    """Split a border at vertices that it visits several times; also returns the copies of vertices to merge afterwards.

    With one patch over all parts, an edge from such a vertex to the centre of the patch would have four triangles in
    files without indices, such as STL. source: [V], the original vertex of each copy.
    """
    parts, same, first, path = [], {}, dict[int, int](), list[int]()
    for vertex in loop:
        place = int(source[vertex])
        if place in first:
            same[vertex] = kept = path[start := first[place]]
            parts.append(np.array(path[start:]))
            for passed in path[start:]:
                del first[int(source[passed])]
            path = path[:start]
            vertex = kept
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
    low, high, best, reached = FEWEST, len(mesh.faces), mesh, 0.0
    for _ in range(ROUNDS):
        if high - low < 0.02 * high:
            break
        count = round(np.sqrt(low * high))
        tried = decimated(mesh, count)
        distance = _distance(mesh, tried)
        if distance <= error:
            high, best, reached = count, tried, distance
        else:
            low = count
    return best, reached


def _distance(mesh: trimesh.Trimesh, simple: trimesh.Trimesh) -> float:
    """The largest distance from a vertex of one mesh to the surface of the other, in both directions."""
    found = []
    for points, other in ((mesh, simple), (simple, mesh)):
        squared = igl.point_mesh_squared_distance(
            np.asarray(points.vertices, float), np.asarray(other.vertices, float), np.asarray(other.faces, np.int64)
        )[0]
        found.append(float(np.sqrt(squared.max())))
    return max(found)
