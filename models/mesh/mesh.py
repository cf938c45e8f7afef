"""A mesh with its colours, the comments written into its file, and the way from the working frame to the file."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import trimesh

from data.parsed_scene import WorldFrame
from data.prepare.world import plausible_up, rotation_to_z
from data.scenes.scene import Posed
from models.requests import UNIT, Y_AXIS, Z_AXIS


@dataclass(frozen=True)
class Surface:
    """A mesh with optional normals, colours and texture. V vertices."""

    mesh: trimesh.Trimesh
    normals: np.ndarray | None = None  # float32 [V, 3], unit
    rgb: np.ndarray | None = None  # uint8 [V, 3], sRGB
    uv: np.ndarray | None = None  # float32 [V, 2], from the lower left corner of `picture`
    picture: np.ndarray | None = None  # texture uint8 [h, w, 3], sRGB; the first row is the top one


@dataclass(frozen=True)
class About:
    """The origin of a mesh: frame, units, step and conf."""

    frame: str  # "world", that of the scene's cameras, or "unit", that of the unit sphere
    units: str  # units of the coordinates, in words
    up: str  # the axis of its coordinates that points up, and how it was found, in words
    step: int  # finished optimiser steps
    conf: str  # the conf of the training

    def lines(self) -> list[str]:
        """The comments of the file as `key: value`, one per line."""
        return [f"{key}: {' '.join(str(value).split())}" for key, value in vars(self).items()]


# (x, y, z) -> (x, z, -y): z up becomes y up, which glTF 2.0 requires (section 3.4, with metres as the unit).
Y_UP = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
CAMERA_UNITS = "those of the scene's cameras"
RADII = "radii of the region of interest"
UNKNOWN_UP = "not known"
FROM_CAMERAS = "the cameras"
MILLIMETRES = np.diag([1000.0, 1000.0, 1000.0, 1.0])


@dataclass(frozen=True)
class FileAxes:
    """The coordinates of a mesh file."""

    change: np.ndarray  # [4, 4], from the world frame of the scene to the file
    units: str  # in words
    up: str  # the axis that points up and how it was found, in words

    def words(self, frame: str) -> str:
        """The frame, the value of --frame, or the up axis and the unit as far as they are known, for the log."""
        if frame == UNIT or self.up == UNKNOWN_UP:
            return f"{frame} frame" + ("" if frame == UNIT else ", up direction not known")
        axis, _, source = self.up.partition(", ")
        unit = "" if self.units == CAMERA_UNITS else f", in {self.units}"
        return f"{axis} up ({source}){unit}"


def file_axes(suffix: str, frame: WorldFrame | None, up: str | None, poses: np.ndarray | None) -> FileAxes:
    """The coordinates of a mesh file with this suffix; `up`: the value of --up.

    The default of `up` is y for GLB and OBJ, which programs with z up turn back; z for PLY and STL. If nothing is known
    about the world frame (`frame` is None), up is estimated from the cameras with poses `poses` [V, 4, 4]: GLB and OBJ
    are turned to it, PLY and STL keep the world frame unless `up` is given. If that is not plausible either, or `poses`
    is None, the z axis is taken for it. STL has no unit and slicers read millimetres, so a metric scene is written in
    millimetres.
    """
    axis = up or (Y_AXIS if suffix in (".glb", ".obj") else Z_AXIS)
    change, words = np.eye(4), UNKNOWN_UP
    if frame is not None:
        words = f"{axis}, {frame.up_source or UNKNOWN_UP}"
    elif poses is not None and (found := plausible_up(poses)) is not None:
        if up is not None or axis == Y_AXIS:
            change[:3, :3] = rotation_to_z(found)
            words = f"{axis}, {FROM_CAMERAS}"
        else:
            words = f"{_named(found)}, {FROM_CAMERAS}"
    if axis == Y_AXIS:
        change = Y_UP @ change
    if frame is None or not frame.is_metric:
        return FileAxes(change, CAMERA_UNITS, words)
    return (
        FileAxes(MILLIMETRES @ change, "millimetres", words) if suffix == ".stl" else FileAxes(change, "metres", words)
    )


def scene_axes(suffix: str, scene: Posed, frame: str, up: str | None) -> FileAxes:
    """The same for the values of --frame and --up, with `change` from the working frame of the scene."""
    if frame == UNIT:
        return replace(file_axes(suffix, None, None, None), units=RADII)
    axes = file_axes(suffix, scene.frame, up, scene.scene_to_world @ scene.c2w)
    return replace(axes, change=axes.change @ scene.scene_to_world)


def _named(up: np.ndarray) -> str:
    """A unit vector [3] in words: an axis such as -y, or its coordinates."""
    index = int(np.abs(up).argmax())
    if abs(up[index]) == 1.0:
        return f"{'-' if up[index] < 0 else ''}{'xyz'[index]}"
    return " ".join(f"{value:.2f}" for value in up)


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
        normals = normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.finfo(float).tiny)
    return replace(surface, mesh=trimesh.Trimesh(vertices, np.array(faces), process=False), normals=normals)
