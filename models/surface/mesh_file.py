"""Read the mesh of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trimesh

from data.errors import UserError
from data.io.geometry_file import GeometryError, load_geometry
from data.scenes.scene import Scene
from models.surface.export import scene_axes, surface_to_world
from models.surface.mesh import Surface

# Formats with plain lists of triangles. trimesh also opens archives, scenes that refer to further files, and URLs.
FILE_TYPES = ("ply", "obj", "stl")


def read_mesh(path: Path | str) -> trimesh.Trimesh:
    """The triangles of a mesh file, as stored: no vertex is merged or removed.

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
        raise UserError(f"{source}: is not a .ply, .obj or .stl file; export the mesh as one of them")
    try:
        mesh = load_geometry(source.read_bytes(), file_type, force="mesh")
    except (GeometryError, OSError) as error:
        raise UserError(
            f"{source}: cannot be read as a mesh ({error}); give a complete .ply, .obj or .stl file"
        ) from error
    if not isinstance(mesh, trimesh.Trimesh) or len(mesh.faces) == 0:
        raise UserError(f"{source}: contains no triangles; give a mesh with faces, not only points")
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
        return 0 < float(double_areas(mesh).sum()) < np.inf


def double_areas(mesh: trimesh.Trimesh) -> np.ndarray:
    """Twice the area of each face, [F]."""
    corners = np.asarray(mesh.vertices, dtype=np.float64)[mesh.faces]
    return np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=-1)


def given_surface(scene: Scene, path: Path, frame: str, up: str | None) -> Surface:
    """The mesh of a file in the working frame, with the colours of its vertices; raises UserError as `read_mesh`.

    `frame`: that of its coordinates, a value of --frame; `up`: its up axis, None for that of the format.
    """
    mesh = read_mesh(path)
    rgb = np.asarray(mesh.visual.vertex_colors)[:, :3] if mesh.visual.kind == "vertex" else None
    axes = scene_axes(path.suffix.lower(), scene, frame, up)
    return surface_to_world(Surface(mesh, rgb=rgb), np.linalg.inv(axes.change))
