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
            if (require_whole := CHECKS.get(file_type)) is not None:
                require_whole(content)
            warnings.filterwarnings("error", message="string or file could not be read to its end")
            stream = io.BytesIO(content)
            return trimesh.load(stream, file_type=file_type, process=False, skip_materials=True, **options)
    finally:
        log.disabled = was_disabled


def ply_elements(content: bytes) -> Iterator[tuple[str, int, list[bool]]]:
    """Name and announced number of each element of a PLY header, and whether its properties are lists."""
    for text in re.split(rb"^\s*element\s", content.partition(b"end_header")[0], flags=re.MULTILINE)[1:]:
        first, *others = text.decode("utf-8", "replace").splitlines()
        name, count = first.split()
        if int(count) < 0:
            raise DamagedError(f"it announces {int(count)} of {name}")
        words = [line.split() for line in others]
        yield name, int(count), [line[1] == "list" for line in words if line and line[0] == "property"]


def _require_whole_ply(content: bytes) -> None:
    """Raises DamagedError for a text with fewer rows, or shorter ones, than announced; trimesh checks binary files."""
    elements = list(ply_elements(content))
    header, _, body = content.partition(b"end_header")
    if not re.search(rb"^\s*format\s+ascii", header, re.MULTILINE):
        return
    rows = iter(body.splitlines()[1:])
    for name, count, are_lists in elements:
        for number in range(count):
            words, at = next(rows, b"").split(), 0
            for is_list in are_lists:
                at += 1 + (int(words[at]) if is_list and at < len(words) else 0)
            if not 0 < at <= len(words):
                raise DamagedError(f"it is truncated: it has {number} of {count} of {name}")


def _require_whole_obj(content: bytes) -> None:
    if (line := BAD_LINE.search(content)) is not None:
        number = content.count(b"\n", 0, line.start()) + 1
        raise DamagedError(f"line {number} has too few numbers, or the index 0")


def _require_whole_glb(content: bytes) -> None:
    """Raises DamagedError for negative numbers, views beyond the file, and far more data than it has."""
    (length, _), start = GLB_CHUNK.unpack_from(content, GLB_HEADER.size), GLB_HEADER.size + GLB_CHUNK.size
    tree = json.loads(content[start : start + length])
    views, accessors = tree.get("bufferViews", []), tree.get("accessors", [])
    items = [COMPONENT_BYTES[entry["componentType"]] * COMPONENTS[entry["type"]] for entry in accessors]
    sizes = [entry["count"] * size for entry, size in zip(accessors, items, strict=True)]
    ends = [view.get("byteOffset", 0) + view["byteLength"] for view in views]
    numbers = [entry[key] for entry in (*views, *accessors) for key in entry if key.startswith("byte")]
    meshes = [
        sum(sizes[part["attributes"]["POSITION"]] for part in mesh["primitives"]) for mesh in tree.get("meshes", [])
    ]
    placed = sum(meshes[node["mesh"]] for node in tree.get("nodes", []) if "mesh" in node)
    if min([0, *numbers, *sizes]) < 0 or max([0, *ends]) > len(content):
        raise DamagedError("it has a negative length, or one beyond the file")
    if sum(sizes) + placed > MOST_COPIES * len(content):
        raise DamagedError("it announces far more than its size")


CHECKS = {"ply": _require_whole_ply, "obj": _require_whole_obj, "glb": _require_whole_glb}
