"""Transform meshes from the working frame to the world frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import trimesh

from models.surface.mesh import Surface

# (x, y, z) -> (x, z, -y): z up becomes y up, which glTF 2.0 requires (section 3.4, with metres as the unit).
Y_UP = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
MILLIMETRES = np.diag([1000.0, 1000.0, 1000.0, 1.0])


def file_axes(suffix: str, is_metric: bool, units: str) -> tuple[np.ndarray, str]:
    """The change [4, 4] from a world frame with z up to the coordinates of a mesh file, and their units in words.

    GLB is y up. STL has no unit and slicers read millimetres, so a scene in metres is written in these. `units` are
    those of a scene whose size is not known.
    """
    change = Y_UP if suffix == ".glb" else np.eye(4)
    if is_metric and suffix == ".stl":
        return MILLIMETRES @ change, "millimetres"
    return change, "metres" if is_metric else units


def surface_to_world(surface: Surface, scene_to_world: np.ndarray) -> Surface:
    """A copy of `surface` with its vertices transformed by `scene_to_world` [4, 4], an affine map (any similarity).

    Colours are kept, normals become unit normals of the new surface. If the map contains a reflection, faces are
    flipped, so that they still face outwards. Raises ValueError for a matrix that is not 4x4, affine, finite and
    invertible.
    """
    matrix = np.asarray(scene_to_world, dtype=np.float64)
    if matrix.shape != (4, 4) or not np.isfinite(matrix).all() or not np.array_equal(matrix[3], [0.0, 0.0, 0.0, 1.0]):
        raise ValueError(f"scene_to_world must be a finite affine 4x4 matrix with last row 0 0 0 1, not {matrix}")
    determinant = np.linalg.det(matrix[:3, :3])
    if determinant == 0.0:
        raise ValueError("scene_to_world is singular: it would flatten the mesh")
    vertices = surface.mesh.vertices @ matrix[:3, :3].T + matrix[:3, 3]
    faces = surface.mesh.faces if determinant > 0.0 else surface.mesh.faces[:, ::-1]
    normals = surface.normals
    if normals is not None:
        normals = normals @ np.linalg.inv(matrix[:3, :3])
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.finfo(float).tiny)
    return replace(surface, mesh=trimesh.Trimesh(vertices, np.array(faces), process=False), normals=normals)
