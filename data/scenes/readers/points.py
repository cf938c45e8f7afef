"""Reads point clouds from PLY files, and the reference of the DTU evaluation."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from data.cameras import LARGEST_NUMBER
from data.errors import DamagedError, SceneError, read_by_library
from data.io.untrusted import load_geometry, read_content
from data.parsed_scene import SparsePoints

MAX_CLOUD_BYTES = 1 << 28  # three million points as text; structure from motion gives about a hundred thousand
MOST_DTU_BYTES = 1 << 30  # of an observation mask and its file; the published ones have about ten million


def read_points(path: Path) -> SparsePoints | None:
    """The vertices of a PLY file with their colours (grey without any); None if it contains no points.

    The format has no view counts and errors: they are 0 and NaN. Raises SceneError for a file that is too large or
    damaged, or has points that are not finite.
    """
    try:
        cloud = load_geometry(read_content(path, MAX_CLOUD_BYTES), "ply")
    except DamagedError as error:
        raise SceneError(f"{path}: cannot be read as a PLY file of points ({error}); write it again") from error
    # A file without vertices becomes an empty trimesh.Scene, which has no such attribute.
    xyz = np.asarray(getattr(cloud, "vertices", ()), dtype=np.float64).reshape(-1, 3)
    rgb = np.asarray(getattr(cloud, "colors", ()))
    is_coloured = rgb.ndim == 2 and rgb.shape[0] == len(xyz) and rgb.shape[1] >= 3
    rgb = rgb[:, :3].astype(np.uint8) if is_coloured else np.full((len(xyz), 3), 128, dtype=np.uint8)
    if not np.isfinite(xyz).all():
        raise SceneError(f"{path}: has points that are NaN or infinite; write it again")
    if len(xyz) == 0:
        return None
    return SparsePoints(xyz, np.zeros(len(xyz), dtype=np.int64), np.full(len(xyz), np.nan), rgb)


@dataclass(frozen=True, eq=False)
class DtuReference:
    """The scan of one object, millimetres."""

    scan: int
    points: np.ndarray  # [N, 3] scanned
    observed: np.ndarray  # [X, Y, Z] bool
    low: np.ndarray  # [3], the centre of the first cell of `observed`
    high: np.ndarray  # [3], the other corner of its box
    cell: float  # width of a cell
    plane: np.ndarray  # [4]


def reference_files(folder: Path, scan: int) -> tuple[Path, Path, Path]:
    """Paths of observation mask, plane and points of a scan; raises SceneError for a missing file."""
    names = (f"ObsMask/ObsMask{scan}_10.mat", f"ObsMask/Plane{scan}.mat", f"Points/stl/stl{scan:03d}_total.ply")
    mask, plane, points = (folder / name for name in names)
    for path in (mask, plane, points):
        if not os.path.isfile(path):  # Path.is_file raises on a long name
            raise SceneError(
                f"{path}: no such file; --dtu names the folder with ObsMask/ and Points/stl/ of the DTU evaluation"
            )
    return mask, plane, points


def read_dtu(folder: Path, scan: int) -> DtuReference:
    """The reference of a scan; raises SceneError for missing or damaged files and other shapes."""
    mask_file, plane_file, points_file = reference_files(folder, scan)
    observed, box, cell = _matrices(mask_file, {"ObsMask": None, "BB": (2, 3), "Res": ()})
    (plane,) = _matrices(plane_file, {"P": (4,)})
    if observed.ndim != 3:
        raise SceneError(f"{mask_file}: ObsMask must have three axes and has {observed.ndim}; download it again")
    if not float(cell) > 0:
        raise SceneError(f"{mask_file}: Res is {float(cell):g} and must be above 0; download it again")
    cloud = read_points(points_file)
    if cloud is None:
        raise SceneError(f"{points_file}: contains no points; download it again")
    low, high = box.astype(np.float32).astype(np.float64)  # rounded as in the published evaluation
    return DtuReference(scan, cloud.xyz, observed.astype(bool), low, high, float(cell), plane.astype(np.float64))


def _matrices(path: Path, wanted: dict[str, tuple[int, ...] | None]) -> list[np.ndarray]:
    """The named arrays of a .mat file; raises SceneError unless they are finite and have the shapes (None: any)."""
    try:
        with read_by_library():
            known = _read_mat(read_content(path, MOST_DTU_BYTES))
    except DamagedError as error:
        raise SceneError(f"{path}: cannot be read as a .mat file ({error}); download it again") from error
    arrays = []
    for name, shape in wanted.items():
        value = known.get(name)
        if value is None or not (np.abs(value) < LARGEST_NUMBER).all():
            raise SceneError(f"{path}: has no array {name} of finite numbers; download it again")
        if shape is not None and value.size != int(np.prod(shape)):
            raise SceneError(
                f"{path}: {name} has {value.size} numbers and must have {int(np.prod(shape))}; download it again"
            )
        arrays.append(value if shape is None else value.reshape(shape))
    return arrays


# MATLAB files of version 5, "MAT-File Format" (MathWorks), chapter "Level 5 MAT-Files". The reader of scipy ends the
# process for some damaged ones.
MAT_HEADER_BYTES, ORDER_AT = 128, 126
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, COMPRESSED = 14, 15
CLASSES, COMPLEX = range(6, 16), 0x800  # of arrays: floats and integers; a flag


def _read_mat(content: bytes) -> dict[str, np.ndarray]:
    """The real arrays of numbers by name; any exception means that the file is damaged."""
    order, most, arrays = (
        {b"IM": "<", b"MI": ">"}[content[ORDER_AT:MAT_HEADER_BYTES]],
        MOST_DTU_BYTES,
        dict[str, np.ndarray](),
    )
    for kind, data in _elements(memoryview(content)[MAT_HEADER_BYTES:], order):
        if kind == COMPRESSED:
            whole = zlib.decompressobj().decompress(data, most)
            most -= len(whole)
            if most <= 0:
                raise DamagedError("its parts are too large")
            kind, data = next(_elements(memoryview(whole), order))
        if kind != MATRIX:
            continue
        (_, flags), (_, sides), (_, name), *values = islice(_elements(data, order), 4)
        (flag,) = struct.unpack_from(f"{order}I", flags)
        if flag & 0xFF in CLASSES and not flag & COMPLEX:
            ((number_type, numbers),) = values
            shape = np.frombuffer(sides, f"{order}i4").tolist()
            array = np.frombuffer(numbers, order + TYPES[number_type]).reshape(shape, order="F")
            arrays[bytes(name).decode("latin-1")] = array
    return arrays


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and content of each element."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start, end = at + 8, at + 8 + size + (-size % 8 if kind != COMPRESSED else 0)
        if kind >> 16:  # up to four bytes of content within the tag
            kind, size, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        if start + size > len(data):
            raise DamagedError("it is truncated")
        yield kind, data[start : start + size]
        at = end
