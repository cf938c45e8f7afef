"""Sample meshes uniformly by area, and measure distances of points to their triangles."""

from __future__ import annotations

import igl
import numpy as np
import trimesh

from models.surface.clean import face_areas


def sample_surface(mesh: trimesh.Trimesh, count: int, generator: np.random.Generator) -> np.ndarray:
    """Points [count, 3] uniform by area on the faces of `mesh`; raises ValueError for a mesh without area."""
    return sample_faces(mesh, count, generator)[0]


def sample_faces(mesh: trimesh.Trimesh, count: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points [count, 3] uniform by area on the faces of `mesh`, and the face [count] of each.

    Faces are selected in proportion to their area; the point on a face follows Osada et al., "Shape distributions", ACM
    TOG 21 (2002), equation 1. Raises ValueError for a mesh without area.
    """
    corners = mesh.vertices[mesh.faces]
    edge_1, edge_2 = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    reached = np.cumsum(face_areas(mesh))
    if len(reached) == 0 or not reached[-1] > 0.0:
        raise ValueError("the mesh has no area to sample")
    # side="right" skips faces without area; the minimum handles a number that is rounded up to the total.
    face = np.minimum(np.searchsorted(reached, reached[-1] * generator.random(count), side="right"), len(reached) - 1)
    root, along = np.sqrt(generator.random((count, 1))), generator.random((count, 1))
    return corners[face, 0] + root * (1.0 - along) * edge_1[face] + root * along * edge_2[face], face


def point_to_mesh(points: np.ndarray, mesh: trimesh.Trimesh) -> np.ndarray:
    """Distance [P] of points [P, 3] to the nearest point of the triangles of `mesh`, exact."""
    return nearest(points, mesh)[0]


def nearest(points: np.ndarray, mesh: trimesh.Trimesh) -> tuple[np.ndarray, np.ndarray]:
    """The distances of `point_to_mesh`, and the face [P] of each nearest point."""
    vertices = np.ascontiguousarray(mesh.vertices, dtype=np.float64)
    faces = np.ascontiguousarray(mesh.faces, dtype=np.int64)
    squared, face, _ = igl.point_mesh_squared_distance(np.ascontiguousarray(points, dtype=np.float64), vertices, faces)
    return np.sqrt(np.maximum(squared, 0.0)), face
