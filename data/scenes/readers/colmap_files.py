"""The files of a COLMAP model: checked, then read by pycolmap in a child process.

pycolmap trusts the counts in a binary file and does not detect a truncated one; in a text file it takes the first word
of a photograph's name for the whole and every second line for matches. Layout of the records:
https://colmap.github.io/format.html.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.errors import one_line
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
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+([eE][-+]?\d+)?")
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
    if path.suffix == ".bin":
        with open(path, "rb") as file:
            head = file.read(COUNT.size)
        if len(head) < COUNT.size:
            raise ModelFileError(f"{path.name} is truncated")
        return COUNT.unpack(head)[0]
    return len(_text_images(path))


def readable_copy(model: Path, files: Sequence[Path], target: Path) -> tuple[dict[str, str], dict[int, int]]:
    """Put what pycolmap reads into the folder `target`: links to `files`, an empty file for points that are missing.

    Of a text model the photographs are renamed to their numbers, so that names may have spaces and lines of matches may
    be missing; returns their names by number, {} for a binary model. Points lose their tracks if the images have no
    matches, to which the tracks would refer; also returned are the numbers of images in these, {} if they are kept.
    Raises ModelFileError for a text that is not UTF-8 or has decimal commas, and for a quaternion of length 0.
    """
    names: dict[str, str] = {}
    views: dict[int, int] = {}
    has_matches = True
    for path in files:
        if path.suffix == ".txt":
            _require_points(path)
        if path.name == "images.bin":
            has_matches = _has_matches(memoryview(path.read_bytes()))
        if path.stem == "points3D" and not has_matches:
            content, views = _without_tracks(path)
            (target / path.name).write_bytes(content)
        elif path.name == "images.txt":
            images = _text_images(path)
            has_matches = any(matches for _, _, matches in images)
            names = {str(number): name for number, (_, name, _) in enumerate(images)}
            lines = (f"{pose} {number}\n{matches}\n" for number, (pose, _, matches) in enumerate(images))
            (target / path.name).write_text("".join(lines), encoding="utf-8")
        elif path.suffix == ".txt":  # without a byte order mark
            (target / path.name).write_text("\n".join([*_lines(path), ""]), encoding="utf-8")
        else:
            (target / path.name).symlink_to(path.resolve())
    points = target / f"points3D{model_suffix(model)}"
    if not points.exists():
        points.write_bytes(COUNT.pack(0) if points.suffix == ".bin" else b"")
    return names, views


def _has_matches(images: memoryview) -> bool:
    """Whether an image of images.bin, which is whole, has points."""
    (count,), position = COUNT.unpack_from(images), COUNT.size
    for _ in range(count):
        at, points = _image_points(images, position)
        if points:
            return True
        position = at
    return False


def _without_tracks(path: Path) -> tuple[bytes, dict[int, int]]:
    """The content of a file of points, which is whole, without their tracks; and the number of images in each track."""
    if path.suffix == ".txt":
        rows = [line.split() for line in _lines(path) if line.strip() and not line.startswith("#")]
        views = {int(row[0]): len(set(row[8::2])) for row in rows if row[0].isdecimal()}
        return "".join(" ".join(row[:8]) + "\n" for row in rows).encode(), views
    content = memoryview(path.read_bytes())
    (count,), position, kept, views = COUNT.unpack_from(content), COUNT.size, [content[: COUNT.size]], {}
    for _ in range(count):
        start, (key, *_, track) = position, POINT_HEADER.unpack_from(content, position)
        position = _after_point(content, position)
        kept += [content[start : start + POINT_HEADER.size - COUNT.size], memoryview(bytes(COUNT.size))]
        views[key] = len(set(np.frombuffer(content[position - track * TRACK_BYTES : position], "<i4")[::2].tolist()))
    return b"".join(kept), views


def _require_points(path: Path) -> None:
    """Raises ModelFileError if the numbers of a text file have decimal commas."""
    for number, line in enumerate(_lines(path), 1):
        if not line.startswith("#") and any(DECIMAL_COMMA.fullmatch(word) for word in line.split(maxsplit=9)[:9]):
            raise ModelFileError(f"{path.name}, line {number}: has decimal commas where numbers need points")


def _lines(path: Path) -> list[str]:
    """The lines of a text file; raises ModelFileError if it is not UTF-8."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ModelFileError(f"{path.name}, line {line}: is not UTF-8 (GBK?); save the file in that encoding") from None


def _text_images(path: Path) -> list[tuple[str, str, str]]:
    """Pose, name and matches of each image of images.txt: a line of matches may be empty or missing."""
    found: list[tuple[str, str, str]] = []
    for number, line in enumerate(_lines(path), 1):
        words = line.split(maxsplit=9)
        if not words or words[0].startswith("#"):
            continue
        if len(words) == 10 and not _is_matches(line):
            given = [not NUMBER.fullmatch(word) or float(word) for word in words[1:5]]
            _require_rotation(path.name, words[9], given)
            found.append((" ".join(words[:9]), words[9].rstrip(), ""))
        elif found and not found[-1][2] and _is_matches(line):
            found[-1] = (*found[-1][:2], line)
        else:
            raise ModelFileError(f"{path.name}, line {number}: is neither a pose with a name nor a line of matches")
    return found


def _require_rotation(file: str, name: str, quaternion: Iterable[float]) -> None:
    """Raises ModelFileError for a quaternion of length 0, which COLMAP takes for no rotation."""
    if not any(quaternion):
        raise ModelFileError(f"{file}: the quaternion of {one_line(name)} is 0 0 0 0, no rotation")


def _is_matches(line: str) -> bool:
    """Whether a line has triples of two pixel coordinates and the number of a point, -1 for none."""
    words = line.split()
    return len(words) % 3 == 0 and all(NUMBER.fullmatch(word) for word in words)


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
    at, points = _image_points(content, position)
    return at + points * IMAGE_POINT_BYTES


def _image_points(content: memoryview, position: int) -> tuple[int, int]:
    """Where the points of an image begin, and their number."""
    number, *quaternion = IMAGE_HEADER.unpack_from(content, position)[:5]
    _require_rotation("images.bin", f"image {number}", quaternion)
    position += IMAGE_HEADER.size
    while content[position : position + 1].tobytes() != b"\0":
        if position >= len(content):
            raise struct.error
        position += 1
    return position + 1 + COUNT.size, COUNT.unpack_from(content, position + 1)[0]


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


def load_tables(
    report: Callable[[object], None], folder: str, names: Mapping[str, str], views: Mapping[int, int]
) -> Tables:
    """Read the model in `folder` with pycolmap, which raises or aborts on errors. A task for `run_apart`.

    `names`: the names of photographs by those in the files, which may have replaced them; `views`: the numbers of
    images that see points, by the numbers of those without tracks.
    """
    import pycolmap

    model = pycolmap.Reconstruction(folder)
    cameras = {
        key: (camera.model.name, camera.width, camera.height, np.array(camera.params, dtype=np.float64))
        for key, camera in model.cameras.items()
    }
    images = tuple(
        RegisteredImage(names.get(image.name, image.name), image.camera_id, np.array(image.cam_from_world().matrix()))
        for image in model.images.values()
        if image.has_pose
    )
    points = list(model.points3D.values())
    seen = [
        views.get(key, len({part.image_id for part in point.track.elements})) for key, point in model.points3D.items()
    ]
    error = np.array([point.error for point in points], dtype=np.float64)
    return Tables(
        cameras=cameras,
        images=images,
        xyz=np.array([point.xyz for point in points], dtype=np.float64).reshape(-1, 3),
        n_views=np.array(seen, dtype=np.int64),
        error=np.where(error < 0, np.nan, error),  # COLMAP writes -1 for an unknown error
        rgb=np.array([point.color for point in points], dtype=np.uint8).reshape(-1, 3),
    )
