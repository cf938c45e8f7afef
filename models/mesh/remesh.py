"""Triangles of even size for a surface: without slivers, and finer where that is wanted. V vertices, F faces.

Borders, and edges of more than two triangles, stay as they are.
"""

from __future__ import annotations

import igl
import numpy as np
import trimesh
from scipy.sparse import csr_matrix

from models.mesh.clean import decimated, face_areas, vertex_normals
from models.mesh.visibility import TRACED_AT_ONCE, dots, lengths

ROUNDS = 3  # of flips and relaxations
FLIPS = 4  # passes; each flips edges without a common triangle
RELAXED = 0.5  # of the way to the middle of the neighbours
WITHIN = 0.05  # of an edge at either end, where the triangles around its ends are
FLAT = 0.5  # cosine between two triangles of which the common edge may be flipped


def adjacency(faces: np.ndarray, count: int) -> csr_matrix:
    """Which of `count` vertices share an edge: ones, float32 [V, V]."""
    begin, end = (faces[:, columns].astype(np.int32).ravel() for columns in ([0, 1, 2], [1, 2, 0]))
    matrix = csr_matrix((np.ones(len(begin), np.float32), (begin, end)), (count, count))
    matrix = matrix + matrix.T
    matrix.data[:] = 1.0
    return matrix


def remeshed(mesh: trimesh.Trimesh, edge: float) -> trimesh.Trimesh:
    """The surface with edges of about the length `edge`, its vertices on `mesh`."""
    wanted = int(face_areas(mesh).sum() / (np.sqrt(3.0) / 4.0 * edge**2))
    rough = decimated(mesh, wanted)
    vertices, faces = np.asarray(rough.vertices), np.asarray(rough.faces)
    for _ in range(ROUNDS):
        faces = flipped(vertices, faces)
        vertices = relaxed(vertices, faces)
        vertices = onto(mesh, vertices)
    return trimesh.Trimesh(vertices, faces, process=False)


def onto(mesh: trimesh.Trimesh, points: np.ndarray) -> np.ndarray:
    """The places [P, 3] of a mesh nearest to points [P, 3]."""
    return igl.point_mesh_squared_distance(
        points, np.asarray(mesh.vertices, float), np.ascontiguousarray(mesh.faces, np.int64)
    )[2]


def relaxed(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Vertices moved towards the middle of their neighbours, within the surface; those of borders stay."""
    mesh = trimesh.Trimesh(vertices, faces, process=False)
    beside, normals = adjacency(faces, len(vertices)), vertex_normals(mesh)
    count = np.asarray(beside.sum(axis=1))
    move = RELAXED * (beside @ vertices / np.maximum(count, 1.0) - vertices)
    move -= dots(move, normals)[:, None] * normals
    edges, _, uses = _sides(faces)
    move[edges[uses != 2]] = 0.0
    return vertices + move


def _sides(faces: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges [E, 2], the lower vertex first, of each corner's opposite side [3 F], and how many faces have each."""
    sides = np.sort(faces[:, [[1, 2], [2, 0], [0, 1]]].reshape(-1, 2), axis=1).astype(np.int64)
    base = int(faces.max()) + 1
    keys, which, uses = np.unique(sides[:, 0] * base + sides[:, 1], return_inverse=True, return_counts=True)
    return np.stack([keys // base, keys % base], axis=1), which, uses


def flipped(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Faces with the edges of the Delaunay triangulation where the surface is about flat."""
    faces = faces.copy()
    for _ in range(FLIPS):
        edges, which, uses = _sides(faces)
        order = np.argsort(which, kind="stable")
        starts = np.concatenate([[0], np.cumsum(uses)[:-1]])[uses == 2]
        one, other = order[starts], order[starts + 1]  # corners opposite of each edge of two triangles
        corner = faces.ravel()
        tip, toe = corner[one], corner[other]
        a, b = (faces[one // 3, (one + step) % 3] for step in (1, 2))  # the edge, in the direction of the first face
        is_bad = (_angle(vertices, tip, a, b) + _angle(vertices, toe, a, b) > np.pi + 1e-3) & (tip != toe)
        both = [_across(vertices, *corners) for corners in ((tip, a, b), (toe, b, a), (tip, a, toe), (toe, b, tip))]
        one_way, *others = (across / np.maximum(lengths(across), 1e-30)[:, None] for across in both)
        is_bad &= np.logical_and.reduce([dots(one_way, across) > FLAT for across in others])
        rows = np.flatnonzero(is_bad)
        base = int(faces.max()) + 1
        new = np.minimum(tip, toe)[rows].astype(np.int64) * base + np.maximum(tip, toe)[rows]
        rows = rows[~np.isin(new, edges[:, 0] * base + edges[:, 1])]
        first = np.full(len(faces), len(one))  # of the edges of a face only the first is flipped
        for side in (one, other):
            np.minimum.at(first, side[rows] // 3, rows)
        rows = rows[(first[one[rows] // 3] == rows) & (first[other[rows] // 3] == rows)]
        if len(rows) == 0:
            break
        faces[one[rows] // 3] = np.stack([tip[rows], a[rows], toe[rows]], axis=1)
        faces[other[rows] // 3] = np.stack([toe[rows], b[rows], tip[rows]], axis=1)
    return faces


def _angle(vertices: np.ndarray, tip: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The angles at the vertices `tip` between `a` and `b`."""
    one, other = vertices[a] - vertices[tip], vertices[b] - vertices[tip]
    return np.arccos(np.clip(dots(one, other) / np.maximum(lengths(one) * lengths(other), 1e-30), -1.0, 1.0))


def _across(vertices: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The normals of triangles, as long as twice their areas."""
    return np.cross(vertices[b] - vertices[a], vertices[c] - vertices[a])


def divided(faces: np.ndarray, is_fine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges halved around the vertices that `is_fine` [V]: four triangles for each there, two for some beside them.

    Returns the faces, and the ends [E, 2] of the new vertices, which follow the old.
    """
    edges, which, _ = _sides(faces)
    which = which.reshape(-1, 3)  # the edge opposite of each corner
    is_halved = np.zeros(len(edges), bool)
    rows = is_fine[faces].any(axis=1)
    while rows.any():  # three halved edges in place of two: bisected twice, triangles would become slivers
        is_halved[which[rows]] = True
        rows = is_halved[which].sum(axis=1) == 2
    middles = np.where(is_halved, len(is_fine) + np.cumsum(is_halved) - 1, -1)[which]
    count = is_halved[which].sum(axis=1)
    (a, b, c), (p, q, r) = faces[count == 3].T, middles[count == 3].T
    parts = [faces[count == 0], *(np.stack(one, axis=1) for one in ((a, r, q), (r, b, p), (q, p, c), (p, q, r)))]
    for corner in range(3):
        rows = (count == 1) & (middles[:, corner] >= 0)
        (a, b, c), p = faces[rows][:, np.arange(corner, corner + 3) % 3].T, middles[rows, corner]
        parts += [np.stack([a, b, p], axis=1), np.stack([a, p, c], axis=1)]
    return np.concatenate(parts), edges[is_halved]


def crossed(vertices: np.ndarray, faces: np.ndarray, around: np.ndarray | None = None) -> np.ndarray:
    """The vertices whose edges pass through other triangles, bool [V]; `around`: only edges of these, bool [V]."""
    mesh, edges = trimesh.Trimesh(vertices, faces, process=False), edges_of(faces)
    if around is not None:
        edges = edges[around[edges].any(axis=1)]
    is_crossed = np.zeros(len(vertices), bool)
    for start in range(0, len(edges), TRACED_AT_ONCE):
        part = edges[start : start + TRACED_AT_ONCE]
        begin, along = vertices[part[:, 0]], vertices[part[:, 1]] - vertices[part[:, 0]]
        triangle = mesh.ray.intersects_first(begin + WITHIN * along, along)
        corners, rows = faces[triangle], np.arange(len(part))
        rows = rows[(triangle >= 0) & ~(corners[:, :, None] == part[:, None, :]).any(axis=(1, 2))]
        across = _across(vertices, *corners[rows].T)
        with np.errstate(divide="ignore", invalid="ignore"):  # an edge within the plane
            share = dots(vertices[corners[rows, 0]] - begin[rows], across) / dots(along[rows], across)
        # Of the edge, where it meets the plane; elsewhere is a triangle ahead, in about the same plane as the edge.
        is_crossed[part[rows[(share > 0.0) & (share < 1.0 - WITHIN)]]] = True
    return is_crossed


def edges_of(faces: np.ndarray) -> np.ndarray:
    """The edges [E, 2] of faces."""
    return _sides(faces)[0]
