"""glTF 2.0 in one binary file (Khronos, specification 2.0, section 4.4): a mesh that web pages and viewers open."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np

from models.surface.mesh import About, Surface

FLOAT, UNSIGNED_SHORT, UNSIGNED_INT = 5126, 5123, 5125
COMPONENTS = {np.dtype("<f4"): FLOAT, np.dtype("<u2"): UNSIGNED_SHORT, np.dtype("<u4"): UNSIGNED_INT}
TYPES = {1: "SCALAR", 2: "VEC2", 3: "VEC3", 4: "VEC4"}
JSON_CHUNK, BINARY_CHUNK = 0x4E4F534A, 0x004E4942
HEADER_BYTES, CHUNK_HEADER_BYTES = 12, 8
VERTEX_DATA, INDICES = 34962, 34963  # what a bufferView is for
CHANNEL_LIMIT = 65535


@dataclass
class _Binary:
    """The buffer as it grows, and its table of contents."""

    content: bytearray = field(default_factory=bytearray)
    views: list[dict[str, Any]] = field(default_factory=list)
    accessors: list[dict[str, Any]] = field(default_factory=list)

    def view(self, content: bytes, target: int | None = None) -> int:
        """Append bytes; returns the number of their bufferView."""
        self.content += b"\0" * (-len(self.content) % 4)
        entry = {"buffer": 0, "byteOffset": len(self.content), "byteLength": len(content)}
        self.views.append(entry | ({} if target is None else {"target": target}))
        self.content += content
        return len(self.views) - 1

    def accessor(self, array: np.ndarray, target: int = VERTEX_DATA, **more: object) -> int:
        """Append an array [N] or [N, C]; returns the number of its accessor."""
        channels = 1 if array.ndim == 1 else array.shape[1]
        view = self.view(np.ascontiguousarray(array).tobytes(), target)
        kind = {"componentType": COMPONENTS[array.dtype], "type": TYPES[channels]}
        self.accessors.append({"bufferView": view, "count": len(array)} | kind | more)
        return len(self.accessors) - 1


def to_glb(surface: Surface, about: About) -> bytes:
    """The file's bytes. Colours are those of the photographs, light included, and so are shown without lamps."""
    binary = _Binary()
    vertices = np.asarray(surface.mesh.vertices, "<f4")
    ends = {"min": vertices.min(axis=0).tolist(), "max": vertices.max(axis=0).tolist()}
    attributes = {"POSITION": binary.accessor(vertices, **ends)}
    if surface.normals is not None:
        attributes["NORMAL"] = binary.accessor(unit(surface.normals).astype("<f4"))
    material: dict[str, Any] = {"doubleSided": True, "pbrMetallicRoughness": {"metallicFactor": 0.0}}
    tree: dict[str, Any] = {}
    if surface.rgb is not None:
        attributes["COLOR_0"] = binary.accessor(_linear(surface.rgb), normalized=True)
    if surface.uv is not None and surface.picture is not None:
        attributes["TEXCOORD_0"] = binary.accessor((surface.uv * [1, -1] + [0, 1]).astype("<f4"))
        image = binary.view(cv2.imencode(".png", surface.picture[..., ::-1])[1].tobytes())
        tree |= {"images": [{"bufferView": image, "mimeType": "image/png"}], "textures": [{"source": 0}]}
        material["pbrMetallicRoughness"]["baseColorTexture"] = {"index": 0}
    if surface.rgb is not None or surface.uv is not None:
        material["extensions"] = {"KHR_materials_unlit": {}}
        tree["extensionsUsed"] = ["KHR_materials_unlit"]
    indices = binary.accessor(np.asarray(surface.mesh.faces, "<u4").reshape(-1), INDICES)
    primitive = {"attributes": attributes, "indices": indices, "material": 0}
    tree |= {
        "asset": {"version": "2.0", "extras": vars(about)},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [primitive], "extras": vars(about)}],
        "materials": [material],
        "accessors": binary.accessors,
        "bufferViews": binary.views,
        "buffers": [{"byteLength": len(binary.content)}],
    }
    return _file(json.dumps(tree).encode(), bytes(binary.content))


def unit(normals: np.ndarray) -> np.ndarray:
    """Normals [V, 3] of unit length; one that has none points along z, since a file may not hold others."""
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.where(length > 0, normals / np.where(length > 0, length, 1.0), [0.0, 0.0, 1.0])


def _linear(rgb: np.ndarray) -> np.ndarray:
    """sRGB uint8 [V, 3] as linear light with opacity, uint16 [V, 4]: what glTF has at vertices (IEC 61966-2-1)."""
    levels = np.arange(256) / 255.0
    light = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    colors = np.rint(light * CHANNEL_LIMIT).astype("<u2")[rgb]
    return np.concatenate([colors, np.full((len(rgb), 1), CHANNEL_LIMIT, "<u2")], axis=1)


def _file(tree: bytes, binary: bytes) -> bytes:
    """Header and two chunks, each filled up to a multiple of four bytes."""
    tree += b" " * (-len(tree) % 4)
    binary += b"\0" * (-len(binary) % 4)
    length = HEADER_BYTES + 2 * CHUNK_HEADER_BYTES + len(tree) + len(binary)
    return b"".join(
        [
            struct.pack("<4sII", b"glTF", 2, length),
            struct.pack("<II", len(tree), JSON_CHUNK),
            tree,
            struct.pack("<II", len(binary), BINARY_CHUNK),
            binary,
        ]
    )
