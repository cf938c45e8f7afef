"""Reads point clouds from untrusted PLY files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from data.errors import SceneError
from data.io.files import read_regular
from data.io.geometry_file import GeometryError, load_geometry
from data.parsed_scene import SparsePoints

MAX_FILE_BYTES = 1 << 28  # three million points as text; structure from motion gives about a hundred thousand
HEADER_BYTES = 1 << 14


def read_points(path: Path) -> SparsePoints | None:
    """The vertices of a PLY file with their colours (grey without any); None if it contains no points.

    The format has no view counts and errors: they are 0 and NaN. Raises SceneError for a file that is too large or
    damaged, or has points that are not finite.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SceneError(f"{path}: is larger than {MAX_FILE_BYTES >> 20} MiB, too large for a sparse point cloud")
        content = read_regular(path)
        cloud = load_geometry(content, "ply")
    except OSError as error:
        raise SceneError(f"{path}: cannot be read ({error.strerror}); check the name and its permissions") from error
    except GeometryError as error:
        raise SceneError(f"{path}: cannot be read as a PLY file of points ({error}); write it again") from error
    # A file without vertices becomes an empty trimesh.Scene, which has no such attribute.
    xyz = np.asarray(getattr(cloud, "vertices", ()), dtype=np.float64).reshape(-1, 3)
    rgb = _colours(cloud, len(xyz))
    announced = re.search(rb"element\s+vertex\s+(\d{1,18})\s", content[:HEADER_BYTES])
    if announced and int(announced[1]) != len(xyz):  # trimesh accepts a truncated text file
        raise SceneError(f"{path}: is truncated: it has {len(xyz)} of {int(announced[1])} points; write it again")
    if not np.isfinite(xyz).all():
        raise SceneError(f"{path}: has points that are NaN or infinite; write it again")
    if len(xyz) == 0:
        return None
    return SparsePoints(xyz, np.zeros(len(xyz), dtype=np.int64), np.full(len(xyz), np.nan), rgb)


def _colours(cloud: object, count: int) -> np.ndarray:
    """uint8 [count, 3]."""
    found = np.asarray(getattr(cloud, "colors", ()))
    if found.ndim == 2 and found.shape[0] == count and found.shape[1] >= 3:
        return found[:, :3].astype(np.uint8)
    return np.full((count, 3), 128, dtype=np.uint8)
