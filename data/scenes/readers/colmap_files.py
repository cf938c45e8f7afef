"""The files of a COLMAP model, binary or text: cameras, images and points3D.

The layout of the records: https://colmap.github.io/format.html. The images have the poses of their own cameras also
where COLMAP writes rigs and frames, which are not read.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from data.errors import one_line
from data.io.files import read_regular
from data.io.images import natural_key
from data.parsed_scene import SparsePoints

COUNT = struct.Struct("<Q")
CAMERA_HEADER = struct.Struct("<iiQQ")  # id, model, width, height; then its parameters
IMAGE_HEADER = struct.Struct("<i7di")  # id, quaternion, translation, camera; then the name, terminated by a zero byte
IMAGE_POINT_BYTES = 24  # x, y, point
POINT_HEADER = struct.Struct("<Q3d3BdQ")  # id, xyz, rgb, error, length of the track
TRACK_BYTES = 8  # image, its point
ROUNDING = 1e-12  # of the length of a quaternion: one that is written with all digits stays as it is
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+([eE][-+]?\d+)?")
NO_IMAGE = "neither a pose with a name nor a line of matches"
Record = TypeVar("Record")


class CameraModel(NamedTuple):
    """The layout of a camera model's parameters: focal lengths, cx, cy, then distortion."""

    focals: int  # 1: one for both axes; 0: no projection of one image
    distortion: int  # number of coefficients, in OpenCV's order
    padded: int = 0  # number of coefficients after padding with zeros, as OpenCV takes 4, 5 or 8
    is_fisheye: bool = False
    own: str = ""  # OpenCV's models cannot express it: the camera model with two focal lengths that can


# By the numbers 0, 1, ... in binary files: src/colmap/sensor/models.h of COLMAP 4.2.1.
CAMERA_MODELS = {
    "SIMPLE_PINHOLE": CameraModel(1, 0),
    "PINHOLE": CameraModel(2, 0),
    "SIMPLE_RADIAL": CameraModel(1, 1, 4),
    "RADIAL": CameraModel(1, 2, 4),
    "OPENCV": CameraModel(2, 4, 4),
    "OPENCV_FISHEYE": CameraModel(2, 4, 4, is_fisheye=True),
    "FULL_OPENCV": CameraModel(2, 8, 8),
    "FOV": CameraModel(2, 1, own="FOV"),
    "SIMPLE_RADIAL_FISHEYE": CameraModel(1, 1, 4, is_fisheye=True),
    "RADIAL_FISHEYE": CameraModel(1, 2, 4, is_fisheye=True),
    "THIN_PRISM_FISHEYE": CameraModel(2, 8, own="THIN_PRISM_FISHEYE"),
    "RAD_TAN_THIN_PRISM_FISHEYE": CameraModel(2, 12, own="RAD_TAN_THIN_PRISM_FISHEYE"),
    "SIMPLE_DIVISION": CameraModel(1, 1, own="DIVISION"),
    "DIVISION": CameraModel(2, 1, own="DIVISION"),
    "SIMPLE_FISHEYE": CameraModel(1, 0, 4, is_fisheye=True),
    "FISHEYE": CameraModel(2, 0, 4, is_fisheye=True),
    "EUCM": CameraModel(2, 2, own="EUCM"),
    "EQUIRECTANGULAR": CameraModel(0, 0),
}


class ModelFileError(Exception):
    """A damaged file of the model; the text is a clause that says why."""


@dataclass(frozen=True, eq=False)
class ColmapCamera:
    """One camera."""

    key: int
    model: str
    width: int
    height: int
    parameters: np.ndarray  # float64, in COLMAP's order and pixel convention


@dataclass(frozen=True, eq=False)
class ColmapImage:
    """One registered image."""

    name: str
    camera: int
    w2c: np.ndarray  # [4, 4] float64


def model_folders(folder: Path) -> list[Path]:
    """The folders with models: sparse/*, sparse/, the folder itself; else those in colmap/sparse/ (nerfstudio)."""
    for sparse, others in ((folder / "sparse", [folder]), (folder / "colmap" / "sparse", [])):
        numbered = sorted(filter(Path.is_dir, sparse.iterdir()), key=natural_key) if sparse.is_dir() else []
        models = [path for path in (*numbered, sparse, *others) if model_suffix(path)]
        if models:
            return models
    return []


def model_suffix(folder: Path) -> str:
    """The suffix, .bin or .txt, of the files that COLMAP would read from `folder`; "" if there is no model."""
    return next((suffix for suffix in (".bin", ".txt") if (folder / f"cameras{suffix}").is_file()), "")


def count_images(path: Path) -> int:
    """The number of images in a file of images, 0 without a file; raises ModelFileError for a damaged one."""
    if not path.is_file():
        return 0
    if path.suffix == ".txt":
        return len(read_images(path))
    head = read_regular(path, COUNT.size)
    if len(head) < COUNT.size:
        raise ModelFileError(f"{path.name} is truncated")
    return COUNT.unpack(head)[0]


def read_cameras(path: Path) -> list[ColmapCamera]:
    """The cameras of cameras.bin or cameras.txt; raises ModelFileError."""
    return _records(path, _camera) if path.suffix == ".bin" else _rows(path, _camera_of_words, "no camera")


def _camera(content: bytes, at: int) -> tuple[ColmapCamera, int]:
    key, kind, width, height = CAMERA_HEADER.unpack_from(content, at)
    if kind not in range(len(CAMERA_MODELS)):
        raise ModelFileError(f"cameras.bin has the unknown camera model {kind}")
    name, layout = list(CAMERA_MODELS.items())[kind]
    parameters = np.frombuffer(content, "<f8", layout.focals + 2 + layout.distortion, at + CAMERA_HEADER.size)
    return ColmapCamera(key, name, width, height, parameters), at + CAMERA_HEADER.size + parameters.nbytes


def _camera_of_words(line: str) -> ColmapCamera:
    key, name, width, height, *parameters = line.split()
    return ColmapCamera(int(key), name, int(width), int(height), np.array(parameters, np.float64))


def read_images(path: Path) -> list[ColmapImage]:
    """The images of images.bin or images.txt; raises ModelFileError."""
    if path.suffix == ".bin":
        return _records(path, _image)
    # A line of matches may be empty or missing: the one before it is a pose.
    found: list[ColmapImage | None] = []
    for image in _rows(path, _image_of_words, NO_IMAGE):
        if image is None and (not found or found[-1] is None):
            raise ModelFileError(f"{path.name}: a line is {NO_IMAGE}")
        found.append(image)
    return [image for image in found if image is not None]


def _image(content: bytes, at: int) -> tuple[ColmapImage, int]:
    _, *pose, camera = IMAGE_HEADER.unpack_from(content, at)
    start = at + IMAGE_HEADER.size
    end = content.index(b"\0", start)
    try:
        name = content[start:end].decode("utf-8")
    except UnicodeDecodeError:
        raise ModelFileError("the names of its photographs are not UTF-8 (GBK?); rename them in UTF-8") from None
    (points,) = COUNT.unpack_from(content, end + 1)
    return ColmapImage(name, camera, _pose(name, pose)), end + 1 + COUNT.size + points * IMAGE_POINT_BYTES


def _image_of_words(line: str) -> ColmapImage | None:
    """The image of a line with a pose; None for one of matches: triples of two coordinates and a point, -1 for none."""
    words = line.split()
    if len(words) % 3 == 0 and all(NUMBER.fullmatch(word) for word in words):
        return None
    _, *pose, camera, name = line.split(maxsplit=9)
    name = name.rstrip()
    return ColmapImage(name, int(camera), _pose(name, np.array(pose, np.float64).reshape(7)))


def _pose(name: str, values: Sequence[float] | np.ndarray) -> np.ndarray:
    """World to camera [4, 4], of a quaternion, w first, of any length but 0, and a translation."""
    length = math.hypot(*values[:4])
    if not 0 < length < math.inf:
        numbers = " ".join(f"{value:g}" for value in values[:4])
        raise ModelFileError(f"the quaternion of {one_line(name)} is {numbers}, no rotation")
    w, x, y, z = np.array(values[:4]) / (length if abs(length - 1) > ROUNDING else 1)
    pose = np.eye(4)
    pose[0, :3] = 1 - (2 * y * y + 2 * z * z), 2 * x * y - 2 * z * w, 2 * x * z + 2 * y * w
    pose[1, :3] = 2 * x * y + 2 * z * w, 1 - (2 * x * x + 2 * z * z), 2 * y * z - 2 * x * w
    pose[2, :3] = 2 * x * z - 2 * y * w, 2 * y * z + 2 * x * w, 1 - (2 * x * x + 2 * y * y)
    pose[:3, 3] = values[4:]
    return pose


def read_points(path: Path) -> SparsePoints | None:
    """The points of points3D.bin or points3D.txt, in COLMAP's world; None without any. Raises ModelFileError."""
    found = _records(path, _point) if path.suffix == ".bin" else _rows(path, _point_of_words, "no point")
    if not found:
        return None
    values, views = np.array([point for point, _ in found]), np.array([views for _, views in found], np.int64)
    error = np.where(values[:, 6] < 0, np.nan, values[:, 6])  # COLMAP writes -1 for an unknown one
    return SparsePoints(values[:, :3], views, error, np.nan_to_num(values[:, 3:6]).clip(0, 255).astype(np.uint8))


def _point(content: bytes, at: int) -> tuple[tuple[list[float], int], int]:
    """x, y, z, red, green, blue and error of a point, and the number of images that see it."""
    _, *values, track = POINT_HEADER.unpack_from(content, at)
    seen = np.frombuffer(content, "<i4", 2 * track, at + POINT_HEADER.size)[::2]
    return (values, len(set(seen.tolist()))), at + POINT_HEADER.size + track * TRACK_BYTES


def _point_of_words(line: str) -> tuple[list[float], int]:
    _, *words = line.split()
    x, y, z, red, green, blue, error = (float(word) for word in words[:7])
    return [x, y, z, red, green, blue, error], len(set(words[7::2]))


def _records(path: Path, record: Callable[[bytes, int], tuple[Record, int]]) -> list[Record]:
    """The records of a binary file; `record` gives the one at a byte, and where the next begins."""
    content, found = read_regular(path), []
    try:
        (count,), at = COUNT.unpack_from(content), COUNT.size
        for _ in range(count):
            one, at = record(content, at)
            found.append(one)
    except (struct.error, ValueError, OverflowError, MemoryError):
        raise ModelFileError(f"{path.name} is truncated or damaged") from None
    if at != len(content):
        raise ModelFileError(f"{path.name} is truncated or damaged: its records end at byte {at}")
    return found


def _rows(path: Path, row: Callable[[str], Record], wrong: str) -> list[Record]:
    """The records of a text file, one a line, without comments and empty lines; `wrong`: what another line is."""
    content, found = read_regular(path), list[Any]()
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise ModelFileError(
            f"{path.name}, line {number}: is not UTF-8 (GBK?); save the file in that encoding"
        ) from None
    for number, line in enumerate(lines, 1):
        try:
            found += [row(line)] if line.strip() and not line.startswith("#") else []
        except (ValueError, OverflowError):
            has_commas = any(DECIMAL_COMMA.fullmatch(word) for word in line.split(maxsplit=9)[:9])
            why = "has decimal commas where numbers need points" if has_commas else f"is {wrong}"
            raise ModelFileError(f"{path.name}, line {number}: {why}") from None
    return found
