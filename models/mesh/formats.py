"""Write a coloured mesh as PLY, OBJ with its material, GLB or STL, by the suffix of the file.

trimesh writes all formats but OBJ. For OBJ it needs three times the time and twice the memory (two million triangles:
12 s and 1.0 GB, here 4 s and 0.6 GB), and rounds coordinates to eight decimals for any scale.

A mesh that is small beside its distance from the origin, as in UTM coordinates, would lose its shape in float32: PLY
then has double coordinates, OBJ more digits; GLB and STL are written less an offset, which a JSON file beside them
records, and in GLB also the translation of its node.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import trimesh
from PIL import Image
from trimesh.exchange.gltf import export_glb
from trimesh.exchange.ply import export_ply
from trimesh.exchange.stl import export_stl
from trimesh.visual.material import PBRMaterial

from data.io.files import write_result
from models.mesh.mesh import FAR_STL, NEAR_STL, About, Surface
from models.mesh.output import companions, offset_file
from models.requests import TEXTURE

STL_HEADER_BYTES, PLY_FACE_BYTES = 80, 13
OF_VERTICES, OF_INDICES = 34962, 34963  # targets of glTF's buffer views (section 3.6.2)
UNLIT = "KHR_materials_unlit"
OPAQUE = 255
DIGITS = 7  # significant ones of coordinates about the origin
FAR = 2  # further digits from which on float32 is too coarse
ROWS = 2**16  # rows of an OBJ that are formatted at a time


def write_surface(surface: Surface, path: Path, about: About) -> list[Path]:
    """Write the mesh; `path` never contains an incomplete file. Raises UserError if it cannot be written.

    Returns all files. The .mtl and .png of a textured OBJ and the record of an offset are in the same folder and are
    written first.
    """
    suffix, written, material = path.suffix.lower(), [path], path
    if suffix == ".obj" and surface.picture is not None:
        material, image = companions(path, TEXTURE)
        write_result(image, cv2.imencode(".png", surface.picture[..., ::-1])[1].tobytes())
        written += [material, image]
        write_result(material, f"newmtl surface\nKa 1 1 1\nKd 1 1 1\nKs 0 0 0\nillum 1\nmap_Kd {image.name}\n".encode())
    if suffix in (".stl", ".glb") and _is_far(surface):
        recorded = {"offset": _offset(surface).tolist(), **vars(about)}
        write_result(offset_file(path), json.dumps(recorded, indent=2).encode())
        written.append(offset_file(path))
    encode: dict[str, Callable[[Surface, About], bytes]] = {".ply": _ply, ".glb": to_glb, ".stl": _stl}
    encode[".obj"] = partial(_obj, material=material.name)
    write_result(path, encode[suffix](surface, about))
    return written


def _mesh(surface: Surface, **more: Any) -> trimesh.Trimesh:
    """The mesh as a trimesh object."""
    normals = None if surface.normals is None else _unit(surface.normals)
    return trimesh.Trimesh(surface.mesh.vertices, surface.mesh.faces, vertex_normals=normals, process=False, **more)


def _digits(surface: Surface) -> int:
    """The significant digits that coordinates need for the shape, whatever its distance from the origin."""
    vertices = np.asarray(surface.mesh.vertices)
    far, extent = np.abs(vertices).max(initial=0.0), np.ptp(vertices, axis=0).max() if len(vertices) else 0.0
    return DIGITS + (math.ceil(math.log10(far / extent)) if 0 < extent < far else 0)


def _is_far(surface: Surface) -> bool:
    return _digits(surface) > DIGITS + FAR


def _offset(surface: Surface) -> np.ndarray:
    """The centre [3] of a far mesh, in digits of the size of its extent; zeros for others."""
    if not _is_far(surface):
        return np.zeros(3)
    low, high = surface.mesh.bounds
    return np.round(0.5 * (low + high), -math.floor(math.log10((high - low).max())))


def _less(surface: Surface, offset: np.ndarray) -> Surface:
    return replace(surface, mesh=trimesh.Trimesh(surface.mesh.vertices - offset, surface.mesh.faces, process=False))


def _unit(normals: np.ndarray) -> np.ndarray:
    """Normals [V, 3] of unit length; zero normals become the z axis, since files require unit normals."""
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.where(length > 0, normals / np.where(length > 0, length, 1.0), [0.0, 0.0, 1.0])


def _ply(surface: Surface, about: About) -> bytes:
    """Binary PLY with comments, and with normals and colours if there are any."""
    content = export_ply(_mesh(surface, vertex_colors=surface.rgb), vertex_normal=surface.normals is not None)
    content = _with_doubles(content, np.asarray(surface.mesh.vertices)) if _is_far(surface) else content
    head, mark, rest = content.partition(b"element vertex")
    return head + "".join(f"comment {line}\n" for line in about.lines()).encode("utf-8", "replace") + mark + rest


def _with_doubles(ply: bytes, vertices: np.ndarray) -> bytes:
    """A binary PLY file of trimesh with double coordinates, `vertices` [V, 3], in place of its own."""
    head, mark, body = ply.partition(b"end_header\n")
    faces = body[-int(head.partition(b"element face ")[2].split()[0]) * PLY_FACE_BYTES :]
    rows = np.frombuffer(body[: len(body) - len(faces)], np.uint8).reshape(len(vertices), -1)
    wide = np.concatenate([vertices.astype("<f8").view(np.uint8), rows[:, 12:]], axis=1)
    for axis in (b"x", b"y", b"z"):
        head = head.replace(b"property float %b\n" % axis, b"property double %b\n" % axis)
    return head + mark + wide.tobytes() + faces


def _stl(surface: Surface, about: About) -> bytes:
    """Binary STL; the header contains as much of the comment as fits."""
    # Readers take a header that begins with "solid" for the text format.
    offset = _offset(surface)
    start = FAR_STL if offset.any() else NEAR_STL
    words = f"{start.decode()}{', '.join(about.lines())}".encode("ascii", "replace")[:STL_HEADER_BYTES]
    return words.ljust(STL_HEADER_BYTES) + export_stl(_mesh(_less(surface, offset)))[STL_HEADER_BYTES:]


def to_glb(surface: Surface, about: About) -> bytes:
    """glTF 2.0 in one file. Colours from photographs include the lighting, so the material is unlit.

    Without a material glTF prescribes a metal, which is nearly black in most viewers, and Blender shows no colours.
    """
    place = np.eye(4)
    place[:3, 3] = _offset(surface)
    mesh = _mesh(_less(surface, place[:3, 3]), metadata=vars(about))
    picture = None if surface.picture is None else Image.fromarray(surface.picture)
    material = PBRMaterial(baseColorTexture=picture, metallicFactor=0.0, doubleSided=True)
    mesh.visual = trimesh.visual.TextureVisuals(surface.uv, material)
    if surface.rgb is not None:
        mesh.visual.vertex_attributes["color"] = _linear_bytes(surface.rgb)

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


def linear(rgb: np.ndarray) -> np.ndarray:
    """sRGB levels from 0 to 255, of any shape, as linear float64 in [0, 1] (IEC 61966-2-1)."""
    shares = rgb / 255.0
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def _linear_bytes(rgb: np.ndarray) -> np.ndarray:
    """sRGB uint8 [V, 3] as linear colours with opacity, uint8 [V, 4], as glTF requires for vertices.

    Many readers, trimesh among them, take wider integers for bytes.
    """
    colors = np.rint(linear(np.arange(256)) * OPAQUE).astype(np.uint8)[rgb]
    return np.concatenate([colors, np.full((len(rgb), 1), OPAQUE, np.uint8)], axis=1)


def _obj(surface: Surface, about: About, material: str) -> bytes:
    """OBJ with colours after the vertices' coordinates, or with `material`."""
    vertices = np.asarray(surface.mesh.vertices)
    colored = vertices if surface.rgb is None else np.concatenate([vertices, surface.rgb / 255.0], axis=1)
    head = [f"# {line}" for line in about.lines()]
    parts = ["\n".join([*head, *([f"mtllib {material}"] if surface.uv is not None else []), ""])]
    parts += _rows("v" + f" %.{_digits(surface)}g" * 3 + " %.4f" * (colored.shape[1] - 3) + "\n", colored)
    fields = ["%d"]
    if surface.uv is not None:
        parts += _rows("vt %.6f %.6f\n", surface.uv)
    if surface.normals is not None:
        parts += _rows("vn %.4f %.4f %.4f\n", _unit(surface.normals))
        fields.append("%d/%d" if surface.uv is not None else "/%d")
    elif surface.uv is not None:
        fields.append("%d")
    parts += ["usemtl surface\n"] if surface.uv is not None else []
    corner = "/".join(fields)
    repeated = np.repeat(np.asarray(surface.mesh.faces) + 1, corner.count("%d"), axis=1)
    parts += _rows("f" + f" {corner}" * 3 + "\n", repeated)
    return "".join(parts).encode("utf-8", "replace")


def _rows(pattern: str, values: np.ndarray) -> list[str]:
    """The rows of `values` formatted by `pattern`, as texts of ROWS rows."""
    found = []
    for start in range(0, len(values), ROWS):
        part = values[start : start + ROWS]
        found.append(pattern * len(part) % tuple(part.reshape(-1).tolist()))
    return found
