"""Meshes out: from the working frame to the world, and onto the disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import trimesh

from data.errors import UserError
from data.io.files import write_result
from models.surface.described import Surface

MESH_SUFFIXES = (".ply", ".obj", ".stl", ".off", ".glb")


def to_world(mesh: trimesh.Trimesh, scene_to_world: np.ndarray) -> trimesh.Trimesh:
    """A copy of `mesh` with its vertices taken through `scene_to_world` [4, 4], an affine map (any similarity).

    Its colours go along, and vertex normals that it has, as unit normals of the new surface. A mirroring map turns the
    faces over, so that they look outwards still. Raises ValueError for a matrix that is not 4x4, affine, finite and
    invertible.
    """
    matrix = np.asarray(scene_to_world, dtype=np.float64)
    if matrix.shape != (4, 4) or not np.isfinite(matrix).all() or not np.array_equal(matrix[3], [0.0, 0.0, 0.0, 1.0]):
        raise ValueError(f"scene_to_world must be a finite affine 4x4 matrix with last row 0 0 0 1, not {matrix}")
    determinant = np.linalg.det(matrix[:3, :3])
    if determinant == 0.0:
        raise ValueError("scene_to_world is singular: it would flatten the mesh")
    vertices = mesh.vertices @ matrix[:3, :3].T + matrix[:3, 3]
    faces = mesh.faces if determinant > 0.0 else mesh.faces[:, ::-1]
    normals = None
    if "vertex_normals" in mesh._cache:  # asking for them would have trimesh work them out, and write them
        normals = mesh.vertex_normals @ np.linalg.inv(matrix[:3, :3])
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return trimesh.Trimesh(vertices, np.array(faces), vertex_normals=normals, visual=mesh.visual.copy(), process=False)


def surface_to_world(surface: Surface, scene_to_world: np.ndarray) -> Surface:
    """The same of a surface: its normals turn with it, its colours stay."""
    normals = surface.normals
    if normals is not None:
        normals = normals @ np.linalg.inv(np.asarray(scene_to_world, dtype=np.float64)[:3, :3])
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.finfo(float).tiny)
    return replace(surface, mesh=to_world(surface.mesh, scene_to_world), normals=normals)


def write_mesh(mesh: trimesh.Trimesh, path: Path | str) -> None:
    """Writes `mesh` in the format of the suffix of `path` (.ply is binary), folders included, in one go.

    The file is written beside its place, synced and renamed, so that `path` never holds half a mesh. Raises UserError
    for a suffix that is not in MESH_SUFFIXES or a place that cannot be written; what was there stays.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in MESH_SUFFIXES:
        raise UserError(f"{target}: a mesh file must end in one of {', '.join(MESH_SUFFIXES)}")
    encoded = mesh.export(file_type=suffix[1:])
    write_result(target, encoded.encode() if isinstance(encoded, str) else encoded)
