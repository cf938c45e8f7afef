"""A coloured mesh as PLY, OBJ with its material, GLB or STL, by the suffix of its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from data.errors import UserError
from data.io.files import write_result
from models.requests import NONE, TEXTURE, VERTEX
from models.surface.gltf import to_glb, unit
from models.surface.mesh import About, Surface

HOLDS = {".ply": (VERTEX, NONE), ".obj": (VERTEX, TEXTURE, NONE), ".glb": (VERTEX, TEXTURE, NONE), ".stl": (NONE,)}
# OBJ has y up and looks along -z, which is what Blender's importer takes it for: there, coordinates are again those of
# the scene. (x, y, z) -> (x, z, -y).
BLENDER = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
STL_HEADER_BYTES = 80
ROWS = 2**16  # of an OBJ, made into text at a time


def require_format(path: Path, color: str | None) -> str:
    """The colour that the file will have: what is asked for, or for None the vertices' where the format holds that.

    Raises UserError for a suffix that is not in HOLDS, and for a format that cannot hold what is asked for.
    """
    suffix = path.suffix.lower()
    if suffix not in HOLDS:
        raise UserError(f"--output {path}: a mesh file must end in one of {', '.join(HOLDS)}")
    if color is None:
        return HOLDS[suffix][0]
    if color not in HOLDS[suffix]:
        able = " or ".join(other for other, held in HOLDS.items() if color in held)
        raise UserError(f"--output {path}: {suffix} cannot hold --colour {color}; write {able}, or --colour none")
    return color


def companions(path: Path, color: str) -> list[Path]:
    """The further files that a mesh at `path` consists of."""
    is_textured = path.suffix.lower() == ".obj" and color == TEXTURE
    return [path.with_suffix(suffix) for suffix in (".mtl", ".png")] if is_textured else []


def write_surface(surface: Surface, path: Path, about: About) -> None:
    """Write the mesh; `path` never holds half of one. Raises UserError for a place that cannot be written.

    A textured OBJ has its .mtl and .png beside it, which are written first.
    """
    suffix = path.suffix.lower()
    if suffix == ".obj" and surface.picture is not None:
        image, material = path.with_suffix(".png"), path.with_suffix(".mtl")
        write_result(image, cv2.imencode(".png", surface.picture[..., ::-1])[1].tobytes())
        write_result(material, f"newmtl surface\nKa 1 1 1\nKd 1 1 1\nKs 0 0 0\nillum 1\nmap_Kd {image.name}\n".encode())
    encode = {".ply": to_ply, ".obj": _obj_at(path), ".glb": to_glb, ".stl": to_stl}[suffix]
    write_result(path, encode(surface, about))


def to_ply(surface: Surface, about: About) -> bytes:
    """Binary PLY with normals and colours where there are any, and comments."""
    columns = [("x", "<f4"), ("y", "<f4"), ("z", "<f4")]
    columns += [("nx", "<f4"), ("ny", "<f4"), ("nz", "<f4")] if surface.normals is not None else []
    columns += [("red", "u1"), ("green", "u1"), ("blue", "u1")] if surface.rgb is not None else []
    rows = np.empty(len(surface.mesh.vertices), columns)
    parts = [np.asarray(surface.mesh.vertices), surface.normals, surface.rgb]
    values = [column for part in parts if part is not None for column in part.T]
    for (name, _), value in zip(columns, values, strict=True):
        rows[name] = value
    faces = np.empty(len(surface.mesh.faces), [("count", "u1"), ("corners", "<i4", 3)])
    faces["count"], faces["corners"] = 3, surface.mesh.faces
    names = {"<f4": "float", "u1": "uchar"}
    header = ["ply", "format binary_little_endian 1.0", *(f"comment {line}" for line in about.lines())]
    header += [f"element vertex {len(rows)}", *(f"property {names[kind]} {name}" for name, kind in columns)]
    header += [f"element face {len(faces)}", "property list uchar int vertex_indices", "end_header"]
    return "\n".join([*header, ""]).encode("utf-8", "replace") + rows.tobytes() + faces.tobytes()


def to_stl(surface: Surface, about: About) -> bytes:
    """Binary STL; as much of what there is to say as its header holds."""
    corners = np.asarray(surface.mesh.vertices)[surface.mesh.faces]
    rows = np.zeros(len(corners), [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
    rows["normal"] = unit(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
    rows["corners"] = corners
    # A header that begins with "solid" would be taken for text.
    words = f"mesh, {', '.join(about.lines())}".encode("ascii", "replace")[:STL_HEADER_BYTES]
    return words.ljust(STL_HEADER_BYTES) + np.uint32(len(rows)).tobytes() + rows.tobytes()


def _obj_at(path: Path) -> Callable[[Surface, About], bytes]:
    """The encoder of an OBJ that will lie at `path`, which it names its material by."""
    return lambda surface, about: to_obj(surface, about, path.with_suffix(".mtl").name)


def to_obj(surface: Surface, about: About, material: str) -> bytes:
    """OBJ in Blender's axes, with colours after the vertices' coordinates, or with `material`."""
    vertices = np.asarray(surface.mesh.vertices) @ BLENDER.T
    colored = vertices if surface.rgb is None else np.concatenate([vertices, surface.rgb / 255.0], axis=1)
    head = [*(f"# {line}" for line in about.lines()), "# axes: y up, -z forward, as Blender reads them"]
    parts = ["\n".join([*head, *([f"mtllib {material}"] if surface.uv is not None else []), ""])]
    parts += _rows("v" + " %.7g" * 3 + " %.4f" * (colored.shape[1] - 3) + "\n", colored)
    fields = ["%d"]
    if surface.uv is not None:
        parts += _rows("vt %.6f %.6f\n", surface.uv)
    if surface.normals is not None:
        parts += _rows("vn %.4f %.4f %.4f\n", unit(surface.normals) @ BLENDER.T)
        fields.append("%d/%d" if surface.uv is not None else "/%d")
    elif surface.uv is not None:
        fields.append("%d")
    parts += ["usemtl surface\n"] if surface.uv is not None else []
    corner = "/".join(fields)
    repeated = np.repeat(np.asarray(surface.mesh.faces) + 1, corner.count("%d"), axis=1)
    parts += _rows("f" + f" {corner}" * 3 + "\n", repeated)
    return "".join(parts).encode("utf-8", "replace")


def _rows(pattern: str, values: np.ndarray) -> list[str]:
    """Each row of `values` in `pattern`, as texts of ROWS rows."""
    found = []
    for start in range(0, len(values), ROWS):
        part = values[start : start + ROWS]
        found.append(pattern * len(part) % tuple(part.reshape(-1).tolist()))
    return found
