"""Transform meshes from the working frame to the world frame."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import trimesh

from data.parsed_scene import WorldFrame
from data.prepare.gravity import camera_up, rotation_to_z
from models.requests import UNIT, Y_AXIS, Z_AXIS
from models.surface.mesh import Surface

# (x, y, z) -> (x, z, -y): z up becomes y up, which glTF 2.0 requires (section 3.4, with metres as the unit).
Y_UP = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
CAMERA_UNITS = "those of the scene's cameras"
UNKNOWN_UP = "not known"
MILLIMETRES = np.diag([1000.0, 1000.0, 1000.0, 1.0])


@dataclass(frozen=True)
class FileAxes:
    """The coordinates of a mesh file."""

    change: np.ndarray  # [4, 4], from the world frame of the scene to the file
    units: str  # in words
    up: str  # the axis that points up, in words

    def words(self, frame: str) -> str:
        """Up axis and unit for the log, as far as they are known, else the frame, the value of --frame."""
        if frame == UNIT or self.up == UNKNOWN_UP:
            return f"{frame} frame"
        axis, comma, source = self.up.partition(",")
        unit = "" if self.units == CAMERA_UNITS else f", in {self.units}"
        return f"{axis} up{comma}{source}{unit}"


def file_axes(suffix: str, frame: WorldFrame | None, up: str | None, poses: np.ndarray) -> FileAxes:
    """The coordinates of a mesh file with this suffix; `up`: the value of --up.

    The default of `up` is y for GLB, and for OBJ, which Blender and other programs read with y up; z for PLY and STL.
    If nothing is known about the world frame (`frame` is None), only OBJ is rotated by default, and `up` refers to the
    mean up direction of the cameras with poses `poses` [V, 4, 4]. STL has no unit and slicers read millimetres, so a
    metric scene is written in millimetres.
    """
    axis = up or (Y_AXIS if suffix in (".glb", ".obj") else Z_AXIS)
    change, words = np.eye(4), f"{axis}, from the cameras"
    if frame is not None:
        words = axis
    elif up is not None:
        change[:3, :3] = rotation_to_z(camera_up(poses))
    else:
        words = UNKNOWN_UP
    if axis == Y_AXIS and (frame is not None or up is not None or suffix == ".obj"):
        change = Y_UP @ change
    if frame is None or not frame.is_metric:
        return FileAxes(change, CAMERA_UNITS, words)
    return (
        FileAxes(MILLIMETRES @ change, "millimetres", words) if suffix == ".stl" else FileAxes(change, "metres", words)
    )


def surface_to_world(surface: Surface, scene_to_world: np.ndarray) -> Surface:
    """A copy of `surface` with its vertices transformed by `scene_to_world` [4, 4], an affine map (any similarity).

    Colours are kept, normals become unit normals of the new surface. If the map contains a reflection, faces are
    flipped, so that they still face outwards. Raises ValueError for a matrix that is not 4x4, affine, finite and
    invertible.
    """
    matrix = np.asarray(scene_to_world, dtype=np.float64)
    if matrix.shape != (4, 4) or not np.isfinite(matrix).all() or not np.array_equal(matrix[3], [0.0, 0.0, 0.0, 1.0]):
        raise ValueError(f"scene_to_world must be a finite affine 4x4 matrix with last row 0 0 0 1, not {matrix}")
    if np.linalg.matrix_rank(matrix[:3, :3]) < 3:
        raise ValueError("scene_to_world is singular: it would flatten the mesh")
    vertices = surface.mesh.vertices @ matrix[:3, :3].T + matrix[:3, 3]
    faces = surface.mesh.faces if np.linalg.det(matrix[:3, :3]) > 0.0 else surface.mesh.faces[:, ::-1]
    normals = surface.normals
    if normals is not None:
        normals = normals @ np.linalg.inv(matrix[:3, :3])
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.finfo(float).tiny)
    return replace(surface, mesh=trimesh.Trimesh(vertices, np.array(faces), process=False), normals=normals)
