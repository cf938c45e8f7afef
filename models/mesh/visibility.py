"""Visibility of mesh points from cameras, in the working frame. P points."""

from __future__ import annotations

import numpy as np
import trimesh

# Radii by which a ray starts above its surface, because of float32 rays and the triangles around a vertex. The shadow
# of a surface closer than this is not detected.
OFFSET = 2e-3
TRACED_AT_ONCE = 2**18  # rays at a time
MOST_TRACED_FACES = 5_000_000  # Embree and trimesh take 300 bytes per triangle
CLUSTER = 1 / 384  # radii: a grid of about 770 cells per axis


def dots(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Scalar products [...] of vectors [..., 3]; NumPy's sum along an axis of three takes five times as long."""
    (x, y, z), (u, v, w) = np.moveaxis(one, -1, 0), np.moveaxis(other, -1, 0)
    return x * u + y * v + z * w


def lengths(vectors: np.ndarray) -> np.ndarray:
    """Lengths [...] of vectors [..., 3]."""
    return np.sqrt(dots(vectors, vectors))


def clustered(mesh: trimesh.Trimesh, size: float) -> trimesh.Trimesh:
    """Merge all vertices of a grid cell to their mean; degenerate triangles are removed."""
    vertices = np.asarray(mesh.vertices)
    cells = np.floor((vertices - vertices.min(axis=0)) / size).astype(np.int64)
    extent = cells.max(axis=0) + 1
    _, which = np.unique(np.ravel_multi_index(tuple(cells.T), tuple(extent)), return_inverse=True)
    count = np.bincount(which)
    middles = np.stack([np.bincount(which, vertices[:, axis]) / count for axis in range(3)], axis=1)
    faces = which.astype(np.int32)[mesh.faces]
    first, second, third = faces.T
    faces = faces[(first != second) & (second != third) & (third != first)]
    return trimesh.Trimesh(middles, faces, process=False)


class Visibility:
    """An occluding mesh; a very fine one is simplified for ray casting."""

    def __init__(self, mesh: trimesh.Trimesh, keeps: bool = False) -> None:
        """keeps: `mesh` keeps the data of Embree for further uses, as long as it exists."""
        is_fine = len(mesh.faces) > MOST_TRACED_FACES
        own = mesh if keeps or is_fine else trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)
        self._mesh = clustered(mesh, CLUSTER) if is_fine else own
        self._offset = 2.0 * CLUSTER if is_fine else OFFSET

    def sees(self, points: np.ndarray, normals: np.ndarray, center: np.ndarray) -> np.ndarray:
        """Whether nothing is between points [P, 3] on the mesh, with outward normals, and `center` [3]: bool [P].

        Back faces are not visible.
        """
        is_visible = np.zeros(len(points), bool)
        facing = np.flatnonzero(normals @ center > dots(points, normals))
        for start in range(0, len(facing), TRACED_AT_ONCE):
            part = facing[start : start + TRACED_AT_ONCE]
            places = points.take(part, axis=0)
            towards = center - places
            towards /= lengths(towards)[:, None]
            origins = places + self._offset * normals.take(part, axis=0)
            is_visible[part] = self._reaches(origins, towards, center)
        return is_visible

    def _reaches(self, origins: np.ndarray, directions: np.ndarray, center: np.ndarray) -> np.ndarray:
        """Whether rays [P, 3] towards `center` [3] meet the mesh only behind it, or not at all: bool [P]."""
        triangle = self._mesh.ray.intersects_first(origins, directions)
        reaches = triangle < 0
        low, high = self._mesh.bounds
        if ((center > low) & (center < high)).all():  # else nothing is behind it
            hits = np.flatnonzero(~reaches)
            reaches[hits] = self._distances(triangle[hits], origins[hits], directions[hits]) > lengths(
                center - origins[hits]
            )
        return reaches

    def _distances(self, triangle: np.ndarray, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """The distances [P] of rays, of unit directions, to the triangles [P] that they meet."""
        corners = np.asarray(self._mesh.vertices)[self._mesh.faces[triangle]]
        across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        ahead, slope = dots(across, corners[:, 0] - origins), dots(across, directions)
        return np.abs(ahead) / np.maximum(np.abs(slope), np.finfo(float).tiny)

    def thickness(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        """The distance [P] from points [P, 3] on the mesh, against their outward normals, to the surface behind them.

        Infinite where there is none.
        """
        origins, distances = points - self._offset * normals, np.full(len(points), np.inf)
        triangle = self._mesh.ray.intersects_first(origins, -normals)
        hits = np.flatnonzero(triangle >= 0)
        distances[hits] = self._offset + self._distances(triangle[hits], origins[hits], -normals[hits])
        return distances
