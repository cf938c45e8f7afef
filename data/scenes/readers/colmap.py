"""COLMAP's sparse models, binary or text: images/, optional masks/, sparse/0 (or sparse/, or the folder itself); and
LLFF's table of cameras, which is made from one.

The format: https://colmap.github.io/format.html and https://colmap.github.io/cameras.html. Poses there are world to
camera with OpenCV's axes; the centre of the first pixel is (0.5, 0.5), which is (0, 0) here. The images have the poses
of their own cameras also where COLMAP writes rigs and frames, which are not read. pycolmap reads truncated files as far
as they go, or never ends, so they are read here.
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
from scipy.spatial.transform import Rotation

from data.cameras import PIXEL_CENTRE, affine
from data.errors import DamagedError, SceneError, one_line
from data.io.files import read_regular
from data.io.images import image_size, left_out, natural_key, photographs_folder, require_images
from data.io.named_files import masks_folder
from data.io.untrusted import positive, read_npy, rigid_pose, side
from data.parsed_scene import CameraFiles, Lens, ParsedScene, PosedImage, SparsePoints
from data.scenes.readers.shots import Shot, posed_images
from data.scenes.readers.transforms import require_same_shape

POINTS_STEM = "points3D"  # may be missing
COUNT_FIELD = struct.Struct("<Q")
CAMERA_HEADER = struct.Struct("<iiQQ")  # id, model, width, height; then its parameters
IMAGE_HEADER = struct.Struct("<i7di")  # id, quaternion, translation, camera; then the name, terminated by a zero byte
IMAGE_POINT_BYTES = 24  # x, y, point
POINT_HEADER = struct.Struct("<Q3d3BdQ")  # id, xyz, rgb, error, length of the track
TRACK_BYTES = 8  # image, its point
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


def matches(folder: Path) -> str:
    """The first model; "" if there is none, or transforms.json was made from it."""
    models = [path.relative_to(folder) for path in model_folders(folder)]
    if not models or (models[0].parts[:1] == ("colmap",) and (folder / "transforms.json").is_file()):
        return ""
    return f"a COLMAP model in {models[0]}" if models[0].parts else f"cameras{model_suffix(folder)}"


def read_colmap(folder: Path, files: CameraFiles) -> ParsedScene:
    """The images, lenses, poses and points of the COLMAP project at `folder`; no image is decoded.

    The images are in the natural order of their file names, then of their folders. Of several models the one with the
    most images is used. `files` is not used; all readers have the same signature.

    Raises SceneError as `read_model`, and for missing images or masks.
    """
    model, shots, points, several = read_model(folder)
    places = [folder] if folder != model else [folder, folder.parent, folder.parent.parent]
    image_folder, mask_folder = (
        next(filter(None, map(find, places)), None) for find in (photographs_folder, masks_folder)
    )
    if image_folder is None:
        raise SceneError(f"{folder}: has no folder images/ with the photographs of the model {model}; put them there")
    images, notes = posed_images(image_folder, mask_folder, shots)
    return ParsedScene(folder.resolve().name, model, images, points, notes=(*several, *notes))


def read_model(folder: Path) -> tuple[Path, list[Shot], SparsePoints | None, list[str]]:
    """The model with the most images: its folder, images and points, and a note if there are others.

    Raises SceneError for a model that is missing or damaged or has an unsupported camera model.
    """
    models = model_folders(folder)
    if not models:
        raise SceneError(f"{folder}: has no COLMAP model: cameras, images and points3D as .bin or .txt in sparse/0")
    counts = {path: _read(path, count_images, "images") for path in models}
    model = max(models, key=lambda path: counts[path])  # the first of equals
    missing = [_file(model, name).name for name in ("cameras", "images") if not _file(model, name).is_file()]
    if missing:
        raise SceneError(f"{model}: has no {', '.join(missing)}, which belongs to the COLMAP model; export it again")
    cameras = {camera.key: camera for camera in _read(model, read_cameras, "cameras")}
    registered = _read(model, read_images, "images")
    points = _read(model, read_points, POINTS_STEM) if _file(model, POINTS_STEM).is_file() else None
    if not registered:
        raise SceneError(f"{model}: the COLMAP model has no posed photographs; run the mapper again with more overlap")
    for image in registered:
        if not np.isfinite(image.w2c).all():
            raise SceneError(f"{model}: the pose of {image.name} is not finite; leave that image out")
        if image.camera not in cameras:
            raise SceneError(f"{model}: {image.name} has the camera {image.camera}, which the model does not contain")
    if points is not None and not np.isfinite(points.xyz).all():
        raise SceneError(f"{model}: its points contain NaN or infinite numbers; export the model again")
    lenses = {key: _lens(model, cameras[key]) for key in {image.camera for image in registered}}
    shots = [Shot(image.name, lenses[image.camera], np.linalg.inv(image.w2c)) for image in registered]
    if len(models) == 1:
        return model, shots, points, []
    counted = ", ".join(f"{path} ({count})" for path, count in counts.items())
    several = f"several COLMAP models without a common frame: {counted} photographs"
    return model, shots, points, [f"{several}; {model}, the largest, is used"]


def _file(model: Path, stem: str) -> Path:
    return model / f"{stem}{model_suffix(model)}"


def _read(model: Path, read: Callable[[Path], Any], stem: str) -> Any:
    """What `read` gives for a file of the model; raises SceneError if it is damaged."""
    try:
        return read(_file(model, stem))
    except (ModelFileError, OSError) as error:
        raise SceneError(f"{model}: the COLMAP model cannot be read ({error}); export it again") from error


def _lens(model: Path, camera: ColmapCamera) -> Lens:
    """The lens of a camera; raises SceneError for an unsupported camera model, or invalid parameters."""
    layout, about = CAMERA_MODELS.get(camera.model), f"{model}: camera {camera.key}"
    if layout is None or not layout.focals:
        raise SceneError(
            f"{about} has the camera model {camera.model}, which is not supported; "
            "cut panoramas into views, as --mode prepare does, or undistort the photographs with COLMAP"
        )
    parameters, width, height = camera.parameters, camera.width, camera.height
    focals, centre, rest = np.split(parameters, [layout.focals, layout.focals + 2])
    if len(rest) != layout.distortion or not np.isfinite(parameters).all() or focals.min() <= 0:
        raise SceneError(f"{about} ({camera.model}) has the invalid parameters {list(parameters)}; correct them")
    if width < 1 or height < 1:
        raise SceneError(f"{about} has {width}x{height} pixels; correct its size")
    intrinsics = np.eye(3)
    intrinsics[0, 0], intrinsics[1, 1] = focals[0], focals[-1]
    intrinsics[:2, 2] = centre - PIXEL_CENTRE
    distortion = (*rest.tolist(), *[0.0] * (layout.padded - layout.distortion))
    return Lens(intrinsics, distortion, layout.is_fisheye, (width, height), layout.own)


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
    head = read_regular(path, COUNT_FIELD.size)
    if len(head) < COUNT_FIELD.size:
        raise ModelFileError(f"{path.name} is truncated")
    return COUNT_FIELD.unpack(head)[0]


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
    images: list[ColmapImage | None] = []
    for image in _rows(path, _image_of_words, NO_IMAGE):
        if image is None and (not images or images[-1] is None):
            raise ModelFileError(f"{path.name}: a line is {NO_IMAGE}")
        images.append(image)
    return [image for image in images if image is not None]


def _image(content: bytes, at: int) -> tuple[ColmapImage, int]:
    _, *pose, camera = IMAGE_HEADER.unpack_from(content, at)
    start = at + IMAGE_HEADER.size
    end = content.index(b"\0", start)
    try:
        name = content[start:end].decode("utf-8")
    except UnicodeDecodeError:
        raise ModelFileError("the names of its photographs are not UTF-8 (GBK?); rename them in UTF-8") from None
    (points,) = COUNT_FIELD.unpack_from(content, end + 1)
    return ColmapImage(name, camera, _pose(name, pose)), end + 1 + COUNT_FIELD.size + points * IMAGE_POINT_BYTES


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
    return affine(Rotation.from_quat(np.roll(values[:4], -1) / length).as_matrix(), values[4:])


def read_points(path: Path) -> SparsePoints | None:
    """The points of points3D.bin or points3D.txt, in COLMAP's world; None without any. Raises ModelFileError."""
    points = _records(path, _point) if path.suffix == ".bin" else _rows(path, _point_of_words, "no point")
    if not points:
        return None
    values, views = np.array([point for point, _ in points]), np.array([views for _, views in points], np.int64)
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
    content, records = read_regular(path), []
    try:
        (count,), at = COUNT_FIELD.unpack_from(content), COUNT_FIELD.size
        for _ in range(count):
            one, at = record(content, at)
            records.append(one)
    except (struct.error, ValueError, OverflowError, MemoryError):
        raise ModelFileError(f"{path.name} is truncated or damaged") from None
    if at != len(content):
        raise ModelFileError(f"{path.name} is truncated or damaged: its records end at byte {at}")
    return records


def _rows(path: Path, row: Callable[[str], Record], wrong: str) -> list[Record]:
    """The records of a text file, one a line, without comments and empty lines; `wrong`: what another line is."""
    content, records = read_regular(path), list[Any]()
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise ModelFileError(
            f"{path.name}, line {number}: is not UTF-8 (GBK?); save the file in that encoding"
        ) from None
    for number, line in enumerate(lines, 1):
        try:
            records += [row(line)] if line.strip() and not line.startswith("#") else []
        except (ValueError, OverflowError):
            has_commas = any(DECIMAL_COMMA.fullmatch(word) for word in line.split(maxsplit=9)[:9])
            why = "has decimal commas where numbers need points" if has_commas else f"is {wrong}"
            raise ModelFileError(f"{path.name}, line {number}: {why}") from None
    return records


# LLFF: poses_bounds.npy [N, 17], a pose [3, 5] row by row, then the nearest and farthest depth of the points; images/
# has N images, in the order of names that Python's `sorted` has: 10.png before 2.png; else images_4/, ..., reduced
# copies. The pose's columns are the camera's axes in the world, down, right and backwards, then its centre, then
# height, width and focal length in pixels (https://github.com/Fyusion/LLFF at c6e27b1, llff/poses/pose_utils.py,
# load_colmap_data); one focal length for both axes. Height, width and focal length refer to the images that COLMAP
# used; `Lens.size` has that size. The format drops COLMAP's principal point, which by default is the image centre, and
# the distortion; if the COLMAP model is there, it is read instead. The depths are only used for a note.
LLFF_FILE = "poses_bounds.npy"
LLFF_COLUMNS = 17
LLFF_BYTES = 1 << 24  # 120 000 images


def read_llff(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / LLFF_FILE
    table = _read_table(source)
    chosen = photographs_folder(folder)
    if chosen is None:
        raise SceneError(f"{folder}: has no folder images/ with the photographs")
    images = sorted(require_images(chosen), key=lambda path: path.name)  # the order of the table
    if len(images) != len(table):
        raise SceneError(
            f"{source}: contains {len(table)} cameras and {chosen} {len(images)} photographs; "
            "provide all photographs that it was made from"
        )
    posed_images = [
        _posed_image(f"{source}: row {index} ({image.name})", row, image)
        for index, (row, image) in enumerate(zip(table, images, strict=True))
    ]
    near, far = table[:, 15].min(), table[:, 16].max()
    notes = left_out(chosen)
    notes += (f"{LLFF_FILE}: the depths of the scene are {near:.4g} to {far:.4g}",) if 0 < near < far else ()
    return ParsedScene(name=folder.resolve().name, source=source, images=tuple(posed_images), notes=notes)


def _read_table(source: Path) -> np.ndarray:
    """float64 [N, 17], finite, N at least 1."""
    if not source.is_file():
        raise SceneError(f"{source.parent}: has no {LLFF_FILE}, which holds the cameras")
    try:
        table = read_npy(source, LLFF_BYTES)
    except (DamagedError, OSError) as error:
        raise SceneError(f"{source}: cannot be read as an npy file of numbers ({error}); write it again") from error
    if table.ndim != 2 or table.shape[1] != LLFF_COLUMNS or len(table) == 0 or table.dtype.kind not in "fiu":
        raise SceneError(
            f"{source}: contains {table.dtype} of shape {list(table.shape)} and must contain numbers "
            f"[N, {LLFF_COLUMNS}]; write it again"
        )
    wrong = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(wrong):
        raise SceneError(
            f"{source}: row {wrong[0]} contains NaN or infinite numbers; correct it or leave that photograph out"
        )
    return table.astype(np.float64)


def _posed_image(where: str, row: np.ndarray, image: Path) -> PosedImage:
    pose = row[:15].reshape(3, 5)
    size = side(where, "the width", float(pose[1, 4])), side(where, "the height", float(pose[0, 4]))
    focal = positive(where, "the focal length", float(pose[2, 4]))
    actual = image_size(image)
    require_same_shape(where, size, actual)
    down, right, backwards, centre = pose[:, :4].T
    c2w = affine(np.stack([right, down, -backwards], axis=1), centre)
    intrinsics = np.array([[focal, 0, (size[0] - 1) / 2], [0, focal, (size[1] - 1) / 2], [0, 0, 1]])
    return PosedImage(image, Lens(intrinsics, size=size), rigid_pose(where, "the pose", c2w), size=actual)
