"""Read meshes, sample them uniformly by area, and measure distances of points to their triangles."""

from __future__ import annotations

from pathlib import Path

import igl
import numpy as np
import trimesh

from data.errors import UserError
from data.io.geometry_file import GeometryError, load_geometry
from models.surface.formats import offset_of

# Formats with plain lists of triangles. trimesh also opens archives, scenes that refer to further files, and URLs.
FILE_TYPES = ("ply", "obj", "stl", "glb")


def read_mesh(path: Path | str) -> trimesh.Trimesh:
    """The triangles of a mesh file, as stored, plus its recorded offset: no vertex is merged or removed.

    Raises UserError for a file that is missing, not a valid mesh, without faces or area, or not finite.
    """
    source = Path(path)
    try:
        is_there = source.is_file()
    except OSError as error:  # the name is too long, or the folder is not accessible
        raise UserError(f"{source}: cannot be read ({error.strerror}); check the path and its permissions") from error
    if not is_there:
        raise UserError(f"{source}: no such mesh file; check the path")
    file_type = source.suffix.lower().removeprefix(".")
    if file_type not in FILE_TYPES:
        raise UserError(f"{source}: is not a .ply, .obj, .stl or .glb file; export the mesh as one of them")
    try:
        mesh = load_geometry(source.read_bytes(), file_type, force="mesh")
        offset = offset_of(source)
    except (GeometryError, OSError) as error:
        raise UserError(
            f"{source}: cannot be read as a mesh ({error}); give a complete .ply, .obj, .stl or .glb file"
        ) from error
    if not isinstance(mesh, trimesh.Trimesh) or len(mesh.faces) == 0:
        raise UserError(f"{source}: contains no triangles; give a mesh with faces, not only points")
    if offset.any():
        mesh.vertices = mesh.vertices + offset
    if not np.isfinite(mesh.vertices).all():
        raise UserError(f"{source}: contains vertices that are NaN or infinite; export the mesh again")
    if mesh.faces.min() < 0 or mesh.faces.max() >= len(mesh.vertices):
        raise UserError(f"{source}: contains faces with vertex indices out of range; export the mesh again")
    if not has_area(mesh):
        raise UserError(f"{source}: its triangles have no area, or an infinite one; export the mesh again")
    return mesh


def has_area(mesh: trimesh.Trimesh) -> bool:
    """Whether points can be sampled on its triangles: their area is neither 0 nor infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return 0 < float(_double_areas(mesh).sum()) < np.inf


def _double_areas(mesh: trimesh.Trimesh) -> np.ndarray:
    """Twice the area of each face, [F]."""
    corners = np.asarray(mesh.vertices, dtype=np.float64)[mesh.faces]
    return np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=-1)


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
    reached = np.cumsum(_double_areas(mesh))
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
