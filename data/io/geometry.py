"""Reads meshes and points from untrusted files by trimesh, which accepts truncated text and impossible counts."""

from __future__ import annotations

import io
import json
import re
import struct
import warnings
from collections.abc import Iterator
from typing import Any

from data.errors import DamagedError, read_by_library

# A line of OBJ with too few coordinates or corners, or with the index 0; indices count from 1.
BAD_LINE = re.compile(rb"^[vf](?:[ \t]+\S+){0,2}(?<!\\)[ \t\r]*$|^f[^\n]*[ \t]0(?=[/\s])", re.MULTILINE)
GROUP = re.compile(rb"^(?:usemtl|mtllib|[ogs])[ \t][^\n]*$", re.MULTILINE)
NEXT_SOLID = re.compile(rb"endsolid[^\n]*\n\s*solid", re.IGNORECASE)
GLB_HEADER, GLB_CHUNK = struct.Struct("<4sII"), struct.Struct("<II")
# Bytes per component and components per item (glTF 2.0, section 3.6.2.2).
COMPONENT_BYTES = {5120: 1, 5121: 1, 5122: 2, 5123: 2, 5125: 4, 5126: 4}
COMPONENTS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT2": 4, "MAT3": 9, "MAT4": 16}
MOST_COPIES = 64  # of a byte of the file: by shared data, and by nodes with the same mesh


def load_geometry(content: bytes, file_type: str, **options: Any) -> Any:
    """Load a file's content with trimesh, without materials; `options` of `trimesh.load`.

    The file name is not passed, so that trimesh does not open referenced materials and textures. Raises DamagedError
    for a damaged or truncated file, and one with less than it announces.
    """
    import trimesh  # takes half a second, and most scenes do not need it

    log = trimesh.util.log
    was_disabled, log.disabled = log.disabled, True
    try:
        with read_by_library():
            stream = io.BytesIO(CHECKS[file_type](content))
            warnings.filterwarnings("error", message="string or file could not be read to its end")
            return trimesh.load(stream, file_type=file_type, process=False, skip_materials=True, **options)
    finally:
        log.disabled = was_disabled


def ply_elements(content: bytes) -> Iterator[tuple[str, int, list[bool]]]:
    """Name and announced number of each element of a PLY header, and whether its properties are lists."""
    for text in re.split(rb"^[ \t]*element[ \t]", content.partition(b"end_header")[0], flags=re.MULTILINE)[1:]:
        first, *others = text.decode("utf-8", "replace").splitlines()
        name, count = first.split()
        if int(count) < 0:
            raise DamagedError(f"it announces {int(count)} rows of {name}")
        words = [line.split() for line in others]
        yield name, int(count), [line[1] == "list" for line in words if line and line[0] == "property"]


def _checked_ply(content: bytes) -> bytes:
    """Raises DamagedError for a text with fewer rows, or shorter ones, than announced; trimesh checks binary files."""
    elements = list(ply_elements(content))
    header, _, body = content.partition(b"end_header")
    is_text = re.search(rb"^[ \t]*format[ \t]+ascii", header, re.MULTILINE) is not None
    rows = iter(body.splitlines()[1:] if is_text else ())
    for name, count, are_lists in elements if is_text else ():
        for number in range(count):
            words, at = next(rows, b"").split(), 0
            for is_list in are_lists:
                at += 1 + (int(words[at]) if is_list and at < len(words) else 0)
            if not 0 < at <= len(words):
                raise DamagedError(f"it is truncated: it has {number} of {count} rows of {name}")
    return content


def _checked_obj(content: bytes) -> bytes:
    """The content without groups and materials, each of which would be a mesh of its own."""
    if (line := BAD_LINE.search(content)) is not None:
        number = content.count(b"\n", 0, line.start()) + 1
        raise DamagedError(f"line {number} has too few numbers, or the index 0")
    return GROUP.sub(b"", content)


def _checked_stl(content: bytes) -> bytes:
    """The content, of a text with all solids in one: trimesh would leave out a truncated one after whole ones."""
    is_binary = len(content) >= 84 and len(content) == 84 + 50 * int.from_bytes(content[80:84], "little")
    return content if is_binary else NEXT_SOLID.sub(b"", content)


def _checked_glb(content: bytes) -> bytes:
    """Raises DamagedError for negative numbers, views beyond the file, and far more data than it has."""
    (length, _), start = GLB_CHUNK.unpack_from(content, GLB_HEADER.size), GLB_HEADER.size + GLB_CHUNK.size
    tree = json.loads(content[start : start + length])
    views, accessors, meshes = (tree.get(key, []) for key in ("bufferViews", "accessors", "meshes"))
    items = [COMPONENT_BYTES[entry["componentType"]] * COMPONENTS[entry["type"]] for entry in accessors]
    sizes = [entry["count"] * size for entry, size in zip(accessors, items, strict=True)]
    ends = [view.get("byteOffset", 0) + view["byteLength"] for view in views]
    numbers = [entry[key] for entry in (*views, *accessors) for key in entry if key.startswith("byte")]
    if min([0, *numbers, *sizes]) < 0 or max([0, *ends]) > len(content):
        raise DamagedError("it has a negative length, or one beyond the file")
    of_meshes = [sum(sizes[part["attributes"]["POSITION"]] for part in mesh["primitives"]) for mesh in meshes]
    placed = [of_meshes[node["mesh"]] for node in tree.get("nodes", []) if "mesh" in node]
    if sum(sizes) + sum(placed) > MOST_COPIES * len(content):
        raise DamagedError("it announces far more than its size")
    return content


CHECKS = {"ply": _checked_ply, "obj": _checked_obj, "stl": _checked_stl, "glb": _checked_glb}
