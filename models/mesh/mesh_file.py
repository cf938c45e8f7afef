"""Read the mesh of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trimesh
from trimesh.visual import ColorVisuals

from data.errors import UserError
from data.io.files import is_file
from data.io.untrusted import GeometryError, load_geometry
from data.scenes.scene import Scene
from models.mesh.clean import face_areas
from models.mesh.formats import offset_of, recorded
from models.mesh.mesh import Y_UP, Surface, scene_axes, surface_to_world
from models.requests import UNIT, WORLD, Y_AXIS, Z_AXIS

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
        return 0 < float(face_areas(mesh).sum()) < np.inf


def given_surface(scene: Scene, path: Path, frame: str, up: str | None) -> Surface:
    """The mesh of a file in the working frame, with the colours of its vertices; raises UserError as `read_mesh`.

    `frame`, `up`: as of `mesh_to_working`.
    """
    mesh = read_mesh(path)
    look, rgb = mesh.visual, None
    if isinstance(look, ColorVisuals) and look.kind == "vertex" and path.suffix.lower() != ".glb":  # has linear ones
        rgb = np.asarray(look.vertex_colors)[:, :3]
    return surface_to_world(Surface(mesh, rgb=rgb), mesh_to_working(scene, path, frame, up))


def frame_of(path: Path, frame: str) -> str:
    """The frame of a mesh file, WORLD or UNIT: what this program wrote into it, else `frame`."""
    own = _recorded(path).get("frame")
    return own if own in (WORLD, UNIT) else frame


def mesh_to_working(scene: Scene, path: Path, frame: str, up: str | None) -> np.ndarray:
    """[4, 4] from the coordinates of a mesh file to the working frame of the scene.

    What this program wrote into its files precedes `frame` and `up`, the values of --frame and --up, which are for the
    files of other programs: these have the axes of their frame, unless they are GLB, which has y up, or `up` is y.
    """
    own, suffix, frame = _recorded(path), path.suffix.lower(), frame_of(path, frame)
    axis = own["up"] if own.get("up") in (Y_AXIS, Z_AXIS) else up
    if own:
        return np.linalg.inv(scene_axes(suffix, scene, frame, axis).change)
    turned = np.linalg.inv(Y_UP) if (axis or (Y_AXIS if suffix == ".glb" else Z_AXIS)) == Y_AXIS else np.eye(4)
    return turned if frame == UNIT else np.linalg.inv(scene.scene_to_world) @ turned


def _recorded(path: Path) -> dict[str, str]:
    return recorded(path) if is_file(path) else {}
