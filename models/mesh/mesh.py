"""Mesh files: a mesh with its colours, its frames and axes, and PLY, OBJ, GLB, STL, USDZ and 3MF files."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import trimesh
from PIL import Image
from trimesh.exchange.gltf import export_glb
from trimesh.exchange.ply import export_ply
from trimesh.exchange.stl import export_stl
from trimesh.visual import ColorVisuals
from trimesh.visual.material import PBRMaterial

from data.cameras import affine
from data.errors import DamagedError, SceneError, UserError, read_by_library
from data.io.files import is_file, read_regular, write_result
from data.io.untrusted import load_geometry, number, read_object
from data.parsed_scene import Reference, WorldFrame
from data.prepare.world import plausible_up, rotation_to_z
from data.scenes.readers.neus import REFERENCE_FILE
from data.scenes.scene import Posed, Scene
from models.mesh.archives import rows, three_mf, usdz
from models.mesh.output import companions, offset_file
from models.requests import FRAMES, TEXTURE, UNIT, UTM, WORLD, Y_AXIS, Z_AXIS


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

    frame: str  # one of FRAMES
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
UNKNOWN_UP = "not known"
FROM_CAMERAS = "the cameras"
WITH_Y_UP, FOR_PRINTING = (".glb", ".obj", ".usdz"), (".stl", ".3mf")
TO_MILLIMETRES = np.diag([1000.0, 1000.0, 1000.0, 1.0])


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

    The default of `up` is that of WITH_Y_UP, which programs with z up turn back, or z. If nothing is known about the
    world frame (`frame` is None), up is estimated from the cameras with poses `poses` [V, 4, 4]: files with y up are
    turned to it, others keep the world frame unless `up` is given. If that is not plausible either, or `poses` is None,
    the z axis is taken for it. STL has no unit and slicers read millimetres, so a metric scene is written in
    millimetres, as in 3MF.
    """
    axis = up or (Y_AXIS if suffix in WITH_Y_UP else Z_AXIS)
    change, words = np.eye(4), UNKNOWN_UP
    if frame is not None:
        words = f"{axis}, {frame.up_source or UNKNOWN_UP}"
    elif poses is not None and (measured := plausible_up(poses)) is not None:
        if up is not None or axis == Y_AXIS:
            change[:3, :3] = rotation_to_z(measured)
            words = f"{axis}, {FROM_CAMERAS}"
        else:
            words = f"{_named(measured)}, {FROM_CAMERAS}"
    if axis == Y_AXIS:
        change = Y_UP @ change
    if frame is None or not frame.is_metric:
        return FileAxes(change, CAMERA_UNITS, words)
    return (
        FileAxes(TO_MILLIMETRES @ change, "millimetres", words)
        if suffix in FOR_PRINTING
        else FileAxes(change, "metres", words)
    )


def scene_axes(suffix: str, scene: Posed, frame: str, up: str | None) -> FileAxes:
    """The same for the values of --frame and --up, with `change` from the working frame of the scene."""
    if frame == UNIT:
        return replace(file_axes(suffix, None, None, None), units="radii of the region of interest")
    axes = file_axes(suffix, scene.frame, up, scene.scene_to_world @ scene.c2w)
    if frame != UTM:
        return replace(axes, change=axes.change @ scene.scene_to_world)
    change, grid = working_to(scene, UTM), referenced(scene.frame)
    units = f"metres of {grid.crs}, minus {' '.join(f'{value:.3f}' for value in grid.offset)}"
    return FileAxes(Y_UP @ change if up == Y_AXIS else change, units, f"{up or Z_AXIS}, GPS positions")


def working_to(scene: Posed, frame: str) -> np.ndarray:
    """[4, 4] from the working frame of a scene to one of FRAMES; raises UserError for one that it does not have."""
    if frame == UNIT:
        return np.eye(4)
    if frame == WORLD:
        return scene.scene_to_world
    return referenced(scene.frame).without_offset @ scene.scene_to_world


def referenced(frame: WorldFrame | None) -> Reference:
    """The map grid of a world frame; raises UserError if it has none."""
    if frame is None or frame.reference is None:
        raise UserError(
            f"--frame {UTM}: the scene has no {REFERENCE_FILE}, which --mode prepare writes for photographs with GPS "
            "positions that fit their cameras; omit --frame"
        )
    return frame.reference


def _named(up: np.ndarray) -> str:
    """A unit vector [3] in words: an axis such as -y, or its coordinates."""
    index = int(np.abs(up).argmax())
    if abs(up[index]) == 1.0:
        return f"{'-' if up[index] < 0 else ''}{'xyz'[index]}"
    return " ".join(f"{value:.2f}" for value in up)


def surface_to_world(surface: Surface, scene_to_world: np.ndarray) -> Surface:
    """A copy of `surface` with its vertices transformed by `scene_to_world` [4, 4], an affine map (any similarity).

    Colours are kept, normals become unit normals of the new surface. If the map contains a reflection, faces are
    flipped, so that they still face outwards.
    """
    matrix = np.asarray(scene_to_world, dtype=np.float64)
    vertices = surface.mesh.vertices @ matrix[:3, :3].T + matrix[:3, 3]
    faces = surface.mesh.faces if np.linalg.det(matrix[:3, :3]) > 0.0 else surface.mesh.faces[:, ::-1]
    normals = surface.normals
    if normals is not None:
        normals = normals @ np.linalg.inv(matrix[:3, :3])
        normals = normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.finfo(float).tiny)
    return replace(surface, mesh=trimesh.Trimesh(vertices, np.array(faces), process=False), normals=normals)


NEAR_STL, FAR_STL = b"mesh, ", b"mesh less an offset, "  # begin the header of an STL of this program
MESH_HEAD_BYTES = 2**16  # of a mesh file, which have the comments
# Formats with plain lists of triangles. trimesh also opens archives, scenes that refer to further files, and URLs.
FILE_TYPES = ("ply", "obj", "stl", "glb")


def recorded(path: Path) -> dict[str, str]:
    """What this program wrote into a mesh file: the fields of `About` as texts; {} for a missing or other file."""
    if not is_file(path):
        return {}
    head = read_regular(path, MESH_HEAD_BYTES).decode("utf-8", "replace")
    if path.suffix.lower() == ".glb":
        match = re.search(r'"frame": ?"(\w+)"(?:.{,400}?"up": ?"([^"]*)")?', head, re.DOTALL)
    else:
        match = re.search(r"\bframe: (\w+)(?:.{,400}?\bup: ([^,\n]*))?", head, re.DOTALL)
    return {"frame": match[1], "up": (match[2] or "").partition(",")[0]} if match else {}


def offset_of(path: Path) -> np.ndarray:
    """The offset [3] of an STL that was written less one; raises SceneError if the file that records it is unusable."""
    record, head = offset_file(path), read_regular(path, MESH_HEAD_BYTES)
    is_far = head.startswith(FAR_STL)
    if path.suffix.lower() != ".stl" or head.startswith(NEAR_STL) or (not is_far and not record.is_file()):
        return np.zeros(3)
    values = read_object(record).get("offset")
    if not isinstance(values, list) or len(values) != 3:
        raise SceneError(f"{record}: offset must be three numbers; write the mesh again, or remove the file")
    return np.array([number(str(record), "offset", value) for value in values])


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
        with read_by_library():
            mesh = load_geometry(read_regular(source), file_type, force="mesh")
            if not isinstance(mesh, trimesh.Trimesh) or len(mesh.faces) == 0:
                raise UserError(f"{source}: contains no triangles; give a mesh with faces, not only points")
            if (offset := offset_of(source)).any():
                mesh.vertices = mesh.vertices + offset
            if not np.isfinite(mesh.vertices).all():
                raise UserError(f"{source}: contains vertices that are NaN or infinite; export the mesh again")
            if mesh.faces.shape[1:] != (3,) or mesh.faces.min() < 0 or mesh.faces.max() >= len(mesh.vertices):
                raise UserError(f"{source}: contains faces with vertex indices out of range; export the mesh again")
            if not has_area(mesh):
                raise UserError(f"{source}: its triangles have no area, or an infinite one; export the mesh again")
            return mesh
    except DamagedError as error:
        raise UserError(
            f"{source}: cannot be read as a mesh ({error}); give a complete .ply, .obj, .stl or .glb file"
        ) from error


def has_area(mesh: trimesh.Trimesh) -> bool:
    """Whether points can be sampled on its triangles: their area is neither 0 nor infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return 0 < mesh.area < np.inf


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
    """The frame of a mesh file, one of FRAMES: what this program wrote into it, else `frame`."""
    own = recorded(path).get("frame")
    return own if own in FRAMES else frame


def mesh_to_working(scene: Scene, path: Path, frame: str, up: str | None) -> np.ndarray:
    """[4, 4] from the coordinates of a mesh file to the working frame of the scene.

    What this program wrote into its files precedes `frame` and `up`, the values of --frame and --up, which are for the
    files of other programs: these have the axes of their frame, unless they are GLB, which has y up, or `up` is y.
    """
    own, suffix, frame = recorded(path), path.suffix.lower(), frame_of(path, frame)
    axis = own["up"] if own.get("up") in (Y_AXIS, Z_AXIS) else up
    if own:
        return np.linalg.inv(scene_axes(suffix, scene, frame, axis).change)
    turned = np.linalg.inv(Y_UP) if (axis or (Y_AXIS if suffix == ".glb" else Z_AXIS)) == Y_AXIS else np.eye(4)
    return np.linalg.inv(working_to(scene, frame)) @ turned


STL_HEADER_BYTES, PLY_FACE_BYTES = 80, 13
OF_VERTICES, OF_INDICES = 34962, 34963  # targets of glTF's buffer views (section 3.6.2)
UNLIT = "KHR_materials_unlit"
COORDINATE_DIGITS = 7  # significant ones of coordinates about the origin
FAR_DIGITS = 2  # further digits from which on float32 is too coarse


def write_surface(surface: Surface, path: Path, about: About) -> list[Path]:
    """Write PLY, OBJ with its material, GLB, STL, USDZ or 3MF, by the suffix; `path` never contains an incomplete file.

    A mesh that is small beside its distance from the origin, as in UTM coordinates, would lose its shape in float32:
    PLY then has double coordinates, OBJ more digits; the others are written less an offset, which a JSON file beside
    them records, and in GLB and USDZ also the translation of a node. Returns all files; the .mtl and .png of a textured
    OBJ and the record of an offset are in the same folder and are written first. Raises UserError if writing fails.
    """
    suffix, files, material = path.suffix.lower(), [path], path
    vertices = np.asarray(surface.mesh.vertices)
    far, extent = np.abs(vertices).max(initial=0.0), np.ptp(vertices, axis=0).max() if len(vertices) else 0.0
    digits = COORDINATE_DIGITS + (math.ceil(math.log10(far / extent)) if 0 < extent < far else 0)
    is_far = digits > COORDINATE_DIGITS + FAR_DIGITS
    if suffix == ".ply":
        write_result(path, _ply(surface, about, is_far))
        return files
    if suffix == ".obj":
        if surface.picture is not None:
            material, image = companions(path, TEXTURE)
            write_result(image, _png(surface.picture))
            look = f"newmtl surface\nKa 1 1 1\nKd 1 1 1\nKs 0 0 0\nillum 1\nmap_Kd {image.name}\n"
            write_result(material, look.encode())
            files += [material, image]
        write_result(path, _obj(surface, about, material.name, digits))
        return files
    offset = np.zeros(3)
    if is_far:
        low, high = surface.mesh.bounds
        offset = np.round(0.5 * (low + high), -math.floor(math.log10((high - low).max())))
        record = {"offset": offset.tolist(), **vars(about)}
        write_result(offset_file(path), json.dumps(record, indent=2).encode())
        files.append(offset_file(path))
        near = trimesh.Trimesh(vertices - offset, surface.mesh.faces, process=False)
        surface = replace(surface, mesh=near)
    if suffix == ".stl":
        content = _stl(surface, about, is_far)
    elif suffix == ".3mf":
        corners = np.asarray(surface.mesh.vertices), np.asarray(surface.mesh.faces)
        content = three_mf(*corners, surface.rgb, "; ".join(about.lines()))
    else:
        content = _usdz(surface, about, offset) if suffix == ".usdz" else _glb(surface, about, offset)
    write_result(path, content)
    return files


def _png(picture: np.ndarray) -> bytes:
    """An image uint8 [h, w, 3], sRGB, as PNG."""
    return cv2.imencode(".png", picture[..., ::-1])[1].tobytes()


def _mesh(surface: Surface, **more: Any) -> trimesh.Trimesh:
    """The mesh as a trimesh object."""
    normals = None if surface.normals is None else _unit(surface.normals)
    return trimesh.Trimesh(surface.mesh.vertices, surface.mesh.faces, vertex_normals=normals, process=False, **more)


def _ply(surface: Surface, about: About, is_far: bool) -> bytes:
    """Binary PLY with comments, with normals and colours if there are any, and double coordinates if it `is_far`."""
    content = export_ply(_mesh(surface, vertex_colors=surface.rgb), vertex_normal=surface.normals is not None)
    head, mark, body = content.partition(b"end_header\n")
    if is_far:
        faces = body[-len(surface.mesh.faces) * PLY_FACE_BYTES :]
        rows = np.frombuffer(body[: len(body) - len(faces)], np.uint8).reshape(len(surface.mesh.vertices), -1)
        wide = np.asarray(surface.mesh.vertices).astype("<f8").view(np.uint8)
        body = np.concatenate([wide, rows[:, 12:]], axis=1).tobytes() + faces
        for axis in (b"x", b"y", b"z"):
            head = head.replace(b"property float %b\n" % axis, b"property double %b\n" % axis)
    comments = "".join(f"comment {line}\n" for line in about.lines()).encode("utf-8", "replace")
    return head.replace(b"element vertex", comments + b"element vertex", 1) + mark + body


def _stl(surface: Surface, about: About, is_far: bool) -> bytes:
    """Binary STL; the header contains as much of the comment as fits."""
    # Readers take a header that begins with "solid" for the text format.
    start = FAR_STL if is_far else NEAR_STL
    words = f"{start.decode()}{', '.join(about.lines())}".encode("ascii", "replace")[:STL_HEADER_BYTES]
    return words.ljust(STL_HEADER_BYTES) + export_stl(_mesh(surface))[STL_HEADER_BYTES:]


def _glb(surface: Surface, about: About, offset: np.ndarray) -> bytes:
    """glTF 2.0 in one file. Colours from photographs include the lighting, so the material is unlit.

    Without a material glTF prescribes a metal, which is nearly black in most viewers, and Blender shows no colours.
    """
    place = affine(np.eye(3), offset)
    mesh = _mesh(surface, metadata=vars(about))
    picture = None if surface.picture is None else Image.fromarray(surface.picture)
    material = PBRMaterial(baseColorTexture=picture, metallicFactor=0.0, doubleSided=True)
    mesh.visual = trimesh.visual.TextureVisuals(surface.uv, material)
    if surface.rgb is not None:  # as linear uint8: many readers, trimesh among them, take wider integers for bytes
        levels = np.rint(linear(np.arange(256)) * 255).astype(np.uint8)
        colors = np.concatenate([levels[surface.rgb], np.full((len(surface.rgb), 1), 255, np.uint8)], axis=1)
        mesh.visual.vertex_attributes["color"] = colors

    def finish(tree: dict[str, Any]) -> None:
        tree["asset"]["extras"] = vars(about)
        primitive = tree["meshes"][0]["primitives"][0]
        for index in (primitive["indices"], *primitive["attributes"].values()):
            view = tree["bufferViews"][tree["accessors"][index]["bufferView"]]
            view["target"] = OF_INDICES if index == primitive["indices"] else OF_VERTICES
        if surface.rgb is not None or picture is not None:
            tree["materials"][0]["extensions"] = {UNLIT: {}}
            tree["extensionsUsed"] = [UNLIT]

    scene = trimesh.Scene()
    scene.add_geometry(mesh, transform=place)
    return export_glb(scene, include_normals=surface.normals is not None, tree_postprocessor=finish)


def _usdz(surface: Surface, about: About, offset: np.ndarray) -> bytes:
    """USDZ; phones show its texture, and not its vertex colours."""
    values = {
        "normal3f[] normals": None if surface.normals is None else _unit(surface.normals),
        "color3f[] primvars:displayColor": None if surface.rgb is None else linear(surface.rgb),
        "texCoord2f[] primvars:st": surface.uv,
    }
    return usdz(
        np.asarray(surface.mesh.vertices),
        np.asarray(surface.mesh.faces),
        {name: value for name, value in values.items() if value is not None},
        None if surface.picture is None else _png(surface.picture),
        offset,
        vars(about),
        is_y_up=not about.up.startswith(Z_AXIS),
    )


def linear(rgb: np.ndarray) -> np.ndarray:
    """sRGB levels from 0 to 255, of any shape, as linear float64 in [0, 1] (IEC 61966-2-1)."""
    shares = rgb / 255.0
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def _unit(normals: np.ndarray) -> np.ndarray:
    """Normals [V, 3] of unit length; zero normals become the z axis, since files require unit normals."""
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.where(length > 0, normals / np.where(length > 0, length, 1.0), [0.0, 0.0, 1.0])


def _obj(surface: Surface, about: About, material: str, digits: int) -> bytes:
    """OBJ with colours after the vertices' coordinates, or with `material`.

    trimesh needs three times the time and twice the memory (two million triangles: 12 s and 1.0 GB, here 4 s and
    0.6 GB), and rounds coordinates to eight decimals for any scale.
    """
    vertices = np.asarray(surface.mesh.vertices)
    colored = vertices if surface.rgb is None else np.concatenate([vertices, surface.rgb / 255.0], axis=1)
    head = [f"# {line}" for line in about.lines()]
    parts = ["\n".join([*head, *([f"mtllib {material}"] if surface.uv is not None else []), ""])]
    parts.append(rows("v" + f" %.{digits}g" * 3 + " %.4f" * (colored.shape[1] - 3) + "\n", colored))
    fields = ["%d"]
    if surface.uv is not None:
        parts.append(rows("vt %.6f %.6f\n", surface.uv))
    if surface.normals is not None:
        parts.append(rows("vn %.4f %.4f %.4f\n", _unit(surface.normals)))
        fields.append("%d/%d" if surface.uv is not None else "/%d")
    elif surface.uv is not None:
        fields.append("%d")
    parts += ["usemtl surface\n"] if surface.uv is not None else []
    corner = "/".join(fields)
    repeated = np.repeat(np.asarray(surface.mesh.faces) + 1, corner.count("%d"), axis=1)
    parts.append(rows("f" + f" {corner}" * 3 + "\n", repeated))
    return "".join(parts).encode("utf-8", "replace")
