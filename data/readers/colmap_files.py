"""The files of a COLMAP model: their record counts are checked, then pycolmap reads them in a child process.

pycolmap trusts the counts in a binary file and does not detect a truncated one. Layout of the records:
https://colmap.github.io/format.html.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.io.images import natural_key

COUNT = struct.Struct("<Q")
CAMERA_HEADER = struct.Struct("<iiQQ")  # id, model, width, height; then its parameters
IMAGE_HEADER = struct.Struct("<i7di")  # id, quaternion, translation, camera; then the name, terminated by a zero byte
IMAGE_POINT_BYTES = 24  # x, y, point
POINT_HEADER = struct.Struct("<Q3d3BdQ")  # id, xyz, rgb, error, length of the track
TRACK_BYTES = 8  # image, its point
RIG_HEADER = struct.Struct("<II")  # id, number of sensors; then the first sensor, and the others with their poses
SENSOR_BYTES = 8  # type, id
SENSOR_POSE_BYTES = 56  # quaternion, translation; after a byte that says whether they follow
FRAME_HEADER = struct.Struct("<II7dI")  # id, rig, quaternion, translation, number of images
FRAME_IMAGE_BYTES = 16  # sensor type, sensor, image
# The number of parameters of the camera models 0, 1, ...: src/colmap/sensor/models.h of COLMAP 4.2.1.
PARAMETER_COUNTS = dict(enumerate((3, 4, 4, 5, 8, 8, 12, 5, 4, 5, 12, 16, 4, 5, 3, 4, 6, 2)))


class ModelFileError(Exception):
    """A damaged file of the model; the text is a clause that says why."""


@dataclass(frozen=True, eq=False)
class RegisteredImage:
    """One registered image."""

    name: str
    camera: int
    w2c: np.ndarray  # [3, 4] float64


@dataclass(frozen=True, eq=False)
class Tables:
    """A model as plain arrays; N points, world frame, COLMAP's pixel convention."""

    cameras: dict[int, tuple[str, int, int, np.ndarray]]  # id -> name of the camera model, width, height, parameters
    images: tuple[RegisteredImage, ...]
    xyz: np.ndarray  # [N, 3] float64
    n_views: np.ndarray  # [N] int
    error: np.ndarray  # [N] float64, mean reprojection error, pixels; NaN if unknown
    rgb: np.ndarray  # [N, 3] uint8


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


def count_images(folder: Path) -> int:
    """The number of images in the model, 0 without a file; raises ModelFileError if the file is truncated."""
    path = folder / f"images{model_suffix(folder)}"
    if not path.is_file():
        return 0
    with open(path, "rb") as file:
        if path.suffix == ".bin":
            head = file.read(COUNT.size)
            if len(head) < COUNT.size:
                raise ModelFileError(f"{path.name} is truncated")
            return COUNT.unpack(head)[0]
        return sum(1 for line in file if not line.startswith(b"#")) // 2


def require_whole(files: Sequence[Path]) -> None:
    """Raises ModelFileError if a binary file of the model does not contain the number of records in its header."""
    walks = {"cameras.bin": _after_camera, "images.bin": _after_image, "points3D.bin": _after_point}
    walks |= {"rigs.bin": _after_rig, "frames.bin": _after_frame}
    for path in files:
        if path.name in walks:
            _walk(path, walks[path.name])


def _walk(path: Path, after: Callable[[memoryview, int], int]) -> None:
    """Step over all records; raises ModelFileError if they do not end at the end of the file."""
    try:
        content = memoryview(path.read_bytes())
        (count,), position = COUNT.unpack_from(content), COUNT.size
        for _ in range(count):
            position = after(content, position)
    except (struct.error, OverflowError, MemoryError):
        raise ModelFileError(f"{path.name} is truncated or damaged") from None
    if position != len(content):
        raise ModelFileError(f"{path.name} is truncated or damaged: its records end at byte {position}")


def _after_camera(content: memoryview, position: int) -> int:
    kind = CAMERA_HEADER.unpack_from(content, position)[1]
    if kind not in PARAMETER_COUNTS:
        raise ModelFileError(f"cameras.bin has the unknown camera model {kind}")
    return position + CAMERA_HEADER.size + 8 * PARAMETER_COUNTS[kind]


def _after_image(content: memoryview, position: int) -> int:
    IMAGE_HEADER.unpack_from(content, position)
    position += IMAGE_HEADER.size
    while content[position : position + 1].tobytes() != b"\0":
        if position >= len(content):
            raise struct.error
        position += 1
    (points,) = COUNT.unpack_from(content, position + 1)
    return position + 1 + COUNT.size + points * IMAGE_POINT_BYTES


def _after_point(content: memoryview, position: int) -> int:
    track = POINT_HEADER.unpack_from(content, position)[-1]
    return position + POINT_HEADER.size + track * TRACK_BYTES


def _after_rig(content: memoryview, position: int) -> int:
    sensors = RIG_HEADER.unpack_from(content, position)[1]
    position += RIG_HEADER.size + SENSOR_BYTES * min(sensors, 1)  # the first one defines the frame of the rig
    for _ in range(sensors - 1):
        (has_pose,) = struct.unpack_from("<?", content, position + SENSOR_BYTES)
        position += SENSOR_BYTES + 1 + SENSOR_POSE_BYTES * has_pose
    return position


def _after_frame(content: memoryview, position: int) -> int:
    images = FRAME_HEADER.unpack_from(content, position)[-1]
    return position + FRAME_HEADER.size + images * FRAME_IMAGE_BYTES


def load_tables(report: Callable[[object], None], folder: str) -> Tables:
    """Read the model in `folder` with pycolmap, which raises or aborts on errors. A task for `run_apart`."""
    import pycolmap

    model = pycolmap.Reconstruction(folder)
    cameras = {
        key: (camera.model.name, camera.width, camera.height, np.array(camera.params, dtype=np.float64))
        for key, camera in model.cameras.items()
    }
    images = tuple(
        RegisteredImage(image.name, image.camera_id, np.array(image.cam_from_world().matrix()))
        for image in model.images.values()
        if image.has_pose
    )
    points = list(model.points3D.values())
    error = np.array([point.error for point in points], dtype=np.float64)
    return Tables(
        cameras=cameras,
        images=images,
        xyz=np.array([point.xyz for point in points], dtype=np.float64).reshape(-1, 3),
        n_views=np.array([len({part.image_id for part in point.track.elements}) for point in points], dtype=np.int64),
        error=np.where(error < 0, np.nan, error),  # COLMAP writes -1 for an unknown error
        rgb=np.array([point.color for point in points], dtype=np.uint8).reshape(-1, 3),
    )
