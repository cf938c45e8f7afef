"""The formats with a `transforms*.json`: those of Blender (NeRF's synthetic scenes), instant-ngp and nerfstudio.

`frames[i].transform_matrix` [4, 4] is camera to world, the camera in OpenGL's axes (x right, y up, looking along -z);
lens keys are at the top level for all images or in a frame for that one. Lengths are pixels of a `w` x `h` image. The
world is that of the file's matrices.

**Blender**: transforms_train.json with `camera_angle_x`, the horizontal field of view in radians, and RGBA images named
without suffix. The images of transforms_test.json (else transforms_val.json, which is never trained on) are held out.
The published NeRF (https://github.com/bmild/nerf at 14c5556, run_nerf_helpers.py, get_rays) takes w / 2 for the optical
axis with pixels counted from 0, which is half a pixel off; feature matches on the lego scene confirm the centre.

**instant-ngp**: transforms.json as its scripts/colmap2nerf.py writes it, with `fl_x`, `fl_y` (else `camera_angle_x`,
`camera_angle_y`), `cx`, `cy`, `k1`, ...; `is_fisheye` with k1 k2 k3 k4 is OpenCV's fisheye model. Behaviour of
https://github.com/NVlabs/instant-ngp at abe236e, src/nerf_loader.cu, without two bugs: there p1 overwrites k3, and
focal lengths are not scaled for images smaller than w x h. As there, frames whose image is missing are left out, with a
note. `aabb_scale`, `scale`, `offset` and `aabb` place the scene in a unit cube; they do not describe the object.

**nerfstudio**: transforms.json as `ns-process-data` writes it, with `camera_model`, `mask_path`, `ply_file_path` and
`train_filenames`. Behaviour of https://github.com/nerfstudio-project/nerfstudio at 50e0e3c,
data/dataparsers/nerfstudio_dataparser.py. `applied_transform` (and `applied_scale`) map the original world, such as
COLMAP's, to that of the file; they are checked but not undone. `mask_path` is black where nerfstudio does not train;
here it is black off the object. Images of `val_filenames` and `test_filenames` that are not in `train_filenames` are
held out; images in no list are left out.

Half pixels. In instant-ngp and nerfstudio the first pixel covers [0, 1), so that its centre is at 0.5 and `cx`, `cy`
count from the image's corner: https://github.com/NVlabs/instant-ngp at abe236e, include/neural-graphics-primitives/
nerf_device.cuh line 572, `(pixel + 0.5) / resolution`; https://github.com/nerfstudio-project/nerfstudio at 50e0e3c,
nerfstudio/cameras/cameras.py line 294, `pixel_offset = 0.5`. Both take them unchanged from COLMAP, which has the same
convention. Here pixel (0, 0) is the first pixel's centre, so 0.5 is subtracted. The default principal point is the
centre of the image: w / 2 from the corner, (w - 1) / 2 here.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np

from data.cameras import LONGEST_FOCAL_RATIO
from data.errors import SceneError, listed, one_line
from data.io.images import IMAGE_SUFFIXES, image_size
from data.io.named_files import leads_out, spelled_below, spelled_file
from data.io.untrusted import (
    OPENGL_TO_OPENCV,
    kind,
    matrix,
    number,
    objects,
    positive,
    read_content,
    read_object,
    rigid_pose,
    side,
    text,
)
from data.parsed_scene import CameraFiles, Lens, ParsedScene, PosedImage
from data.scenes.readers.points import read_points

TRANSFORMS_FILE, BLENDER_FILE = "transforms.json", "transforms_train.json"
# Keys that ns-process-data writes and instant-ngp does not know.
NERFSTUDIO_KEYS = re.compile(
    rb'"(camera_model|applied_transform|ply_file_path|train_filenames|distortion_params|mask_path|colmap_im_id)"\s*:'
)
CORNER_TO_CENTRE = -0.5  # from coordinates relative to the image's corner to ones relative to the first pixel's centre
PINHOLE_MODELS = ("PERSPECTIVE", "OPENCV", "SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL")
FISHEYE_MODEL = "OPENCV_FISHEYE"
SPLITS = ("train_filenames", "val_filenames", "test_filenames")

FOCAL_KEYS = {"x": ("x_fov", "fl_x", "camera_angle_x"), "y": ("y_fov", "fl_y", "camera_angle_y")}
# Lens models of instant-ngp (nerf_loader.cu, read_lens) that are not pinholes with OpenCV's distortion.
OTHER_LENSES = ("ftheta_p0", "latlong", "equirectangular", "orthographic")
# Keys of lenses in other programs' exports that would change where a pixel looks.
LENS_KEYS = re.compile(r"k\d+|p\d+|b\d|s[xy]?\d|tau_?[xy]|skew\w*|disto\w*|fisheye\w*")
READ_KEYS = ("k1", "k2", "k3", "k4", "p1", "p2", "distortion_params")
# Of the photographs of a scene; if more are missing, the folder is probably the wrong one. instant-ngp has its own.
MOST_ABSENT, MOST_ABSENT_NGP = 0.1, 0.5
HELD_OUT_FILES = ("transforms_test.json", "transforms_val.json")  # the first existing one is used
LONGEST_QUOTE = 120  # characters of a file name in a message


def matches_blender(folder: Path) -> str:
    """The camera file; "" where it is missing, or transforms.json says more."""
    is_there = (folder / BLENDER_FILE).is_file() and not (folder / TRANSFORMS_FILE).is_file()
    return BLENDER_FILE if is_there else ""


def matches(is_nerfstudio: bool, folder: Path) -> str:
    """The camera file, where nerfstudio wrote it or did not, else ""; raises SceneError for one that cannot be read."""
    path = folder / TRANSFORMS_FILE
    is_such = path.is_file() and bool(NERFSTUDIO_KEYS.search(read_content(path))) == is_nerfstudio
    return TRANSFORMS_FILE if is_such else ""


def read_blender(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    return _with_held_out(folder, folder / BLENDER_FILE, 0.0)


def read_ngp(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    return _with_held_out(folder, folder / TRANSFORMS_FILE, MOST_ABSENT_NGP)


def _with_held_out(folder: Path, source: Path, most_missing: float) -> ParsedScene:
    """The images of a camera file, and those of the one for tests; `most_missing`: the fraction that may be missing."""
    posed_images, notes = list[PosedImage](), list[str]()
    held_out = next((folder / name for name in HELD_OUT_FILES if (folder / name).is_file()), None)
    for path in filter(None, (source, held_out)):
        frames = read_frames(path)[1]
        find = find_file if most_missing else required_file
        paths = [find(frame, "file_path", frame.name) for frame in frames]
        notes += [*require_most(path, [frame.name for frame in frames], paths, most_missing), *_moved(path, frames)]
        posed_images += [
            posed_image(frame, image, is_fisheye(frame), is_held_out=path is held_out)
            for frame, image in zip(frames, paths, strict=True)
            if image is not None
        ]
    require_distinct(source, posed_images)
    return ParsedScene(folder.resolve().name, source, tuple(posed_images), notes=tuple(notes))


def read_nerfstudio(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / TRANSFORMS_FILE
    content, frames = read_frames(source)
    if "applied_transform" in content:
        given = matrix(str(source), "applied_transform", content["applied_transform"])
        rigid_pose(str(source), "applied_transform", given)
    if "applied_scale" in content:
        positive(str(source), "applied_scale", content["applied_scale"])
    paths = [find_file(frame, "file_path", frame.name) for frame in frames]
    held_out = _split(source, content, frames, paths)
    posed_images = [
        _of_nerfstudio(frame, path, held_out[index])
        for index, (frame, path) in enumerate(zip(frames, paths, strict=True))
        if path and index in held_out
    ]
    used = sorted(held_out)
    missing = require_most(source, [frames[index].name for index in used], [paths[index] for index in used])
    require_distinct(source, posed_images)
    points = None
    if "ply_file_path" in content:
        name = text(str(source), "ply_file_path", content["ply_file_path"])
        path = find_file(Frame(str(source), folder, name, {}, {}), "ply_file_path", name)
        if path is None:
            raise SceneError(f"{source}: ply_file_path {one_line(name)} does not exist; add the file or remove the key")
        points = read_points(path)
    notes = []
    if len(used) < len(frames):
        notes.append(f"{len(frames) - len(used)} photographs are in none of {', '.join(SPLITS)} and left out")
    without_mask = [posed.mask_path is None for posed in posed_images]
    if not all(without_mask):
        notes.append("mask_path is read as an object mask, white on the object and black off it")
    if any(without_mask) and not all(without_mask):
        count = f"{sum(without_mask)} of {len(without_mask)}"
        notes.append(f"{count} frames have no mask_path and count as unmasked, all object")
    if "applied_transform" in content:
        notes.append("meshes are in the world of its matrices, after applied_transform")
    return ParsedScene(
        name=folder.resolve().name,
        source=source,
        images=tuple(posed_images),
        points=points,
        notes=(*missing, *(f"{TRANSFORMS_FILE}: {note}" for note in notes), *_moved(source, frames)),
    )


def _of_nerfstudio(frame: Frame, image: Path, is_held_out: bool) -> PosedImage:
    model = frame.get("camera_model", FISHEYE_MODEL if is_fisheye(frame) else "PERSPECTIVE")
    if model not in (*PINHOLE_MODELS, FISHEYE_MODEL):
        supported = ", ".join((*PINHOLE_MODELS, FISHEYE_MODEL))
        raise SceneError(f"{frame.where}: camera_model {reprlib.repr(model)} is not supported; it may be {supported}")
    if is_fisheye(frame) and model != FISHEYE_MODEL:
        raise SceneError(f"{frame.where}: is_fisheye is true and camera_model {model}; remove the wrong one")
    mask = None
    if "mask_path" in frame.own:
        mask = required_file(frame, "mask_path", text(frame.where, "mask_path", frame.own["mask_path"]))
    return posed_image(frame, image, model == FISHEYE_MODEL, is_held_out, mask)


def _split(
    source: Path, content: Mapping[str, object], frames: Sequence[Frame], paths: Sequence[Path | None]
) -> dict[int, bool]:
    """The indices of the used frames of nerfstudio, and whether each is held out."""
    if not any(key in content for key in SPLITS):
        return dict.fromkeys(range(len(frames)), False)
    index_of: dict[Path | str, int] = {path or frames[index].name: index for index, path in enumerate(paths)}
    groups: dict[str, set[int]] = {key: set() for key in SPLITS}
    for key in SPLITS:
        names = content.get(key, [])
        if not isinstance(names, list):
            raise SceneError(f"{source}: {key} must be a list of file names; correct it")
        for entry in names:
            name = text(str(source), f"an entry of {key}", entry)
            path = find_file(Frame(f"{source}: {key}", source.parent, name, {}, {}), key, name) or name
            if path not in index_of:
                raise SceneError(f"{source}: {key} names {one_line(name)}, which no frame has; correct it")
            groups[key].add(index_of[path])
    training, validation, test = groups.values()
    if not training:
        raise SceneError(
            f"{source}: train_filenames is missing or empty; name the photographs to train on, or "
            "remove all three lists"
        )
    return {index: index not in training for index in sorted(training | validation | test)}


@dataclass(frozen=True, eq=False)
class Frame:
    """An entry of `frames`, with the keys for all frames."""

    where: str  # prefix of messages: the file, the index of the frame and the image's name
    folder: Path  # the base of relative file names
    name: str  # file_path
    own: Mapping[str, object]
    shared: Mapping[str, object]

    def get(self, key: str, default: object = None) -> object:
        """The frame's own value of `key`, else the one of all frames, else `default`."""
        return self.own.get(key, self.shared.get(key, default))


def read_frames(path: Path) -> tuple[dict[str, object], list[Frame]]:
    """The JSON object at `path` and its frames, at least one; raises SceneError."""
    if not path.is_file():
        raise SceneError(f"{path.parent}: has no {path.name}, which holds the cameras")
    content = read_object(path)
    frames = []
    for index, entry in enumerate(objects(str(path), "frames", content)):
        name = text(f"{path}: frame {index}", "file_path", entry.get("file_path"))
        frames.append(Frame(f"{path}: frame {index} ({_short(name)})", path.parent, name, entry, content))
    return content, frames


def _short(name: str) -> str:
    """A file name, shortened for a message."""
    return one_line(name if len(name) <= LONGEST_QUOTE else f"{name[:LONGEST_QUOTE]}...")


def find_file(frame: Frame, key: str, name: str) -> Path | None:
    """The image file `name`, relative to the camera file; None if it does not exist.

    The name is tried as given, then with an image suffix appended, and with its suffix in the other letter case. One of
    another place, such as an absolute one of the machine where the cameras were estimated, stands for the file that
    ends like it. Raises SceneError for a name that leads out of the scene folder, OSError for a folder that may not be
    entered.
    """
    if not (leads_out(name) or PureWindowsPath(name).anchor):
        return spelled_file(frame.folder, name)  # instant-ngp accepts Windows paths, too
    path = spelled_below(frame.folder, name)
    if leads_out(name) and path is None:
        raise SceneError(
            f"{frame.where}: its {key} {_short(name)} leads out of the scene folder; give it relative to {frame.folder}"
        )
    return path


def require_most(
    source: Path, names: Sequence[str], paths: Sequence[Path | None], most: float = MOST_ABSENT
) -> list[str]:
    """A note on photographs whose `paths` are None; raises SceneError if they are more than `most` of all."""
    missing = [name for name, path in zip(names, paths, strict=True) if path is None]
    counts = f"{len(missing)} of {len(names)} photographs are missing"
    if len(missing) > most * len(names):
        raise SceneError(
            f"{source}: {counts}, the first is {_short(missing[0])}; add them under the names that the cameras have"
        )
    return [f"{source}: {counts} and left out: {listed([_short(name) for name in missing])}"] if missing else []


def required_file(frame: Frame, key: str, name: str) -> Path:
    """`find_file`; raises SceneError if the file does not exist."""
    path = find_file(frame, key, name)
    if path is None:
        raise SceneError(
            f"{frame.where}: its {key} {_short(name)} does not exist (nor with {', '.join(IMAGE_SUFFIXES)} appended); "
            "add it or remove the frame"
        )
    return path


def posed_image(
    frame: Frame, image: Path, is_fisheye: bool = False, is_held_out: bool = False, mask: Path | None = None
) -> PosedImage:
    """The image file with the camera of `frame`; raises SceneError or ImageError if they are inconsistent."""
    if "transform_matrix" not in frame.own:
        raise SceneError(f"{frame.where}: has no transform_matrix; add the pose or remove the frame")
    given = matrix(frame.where, "transform_matrix", frame.own["transform_matrix"])
    c2w = rigid_pose(frame.where, "transform_matrix", given) @ OPENGL_TO_OPENCV
    size = image_size(image)
    return PosedImage(image, read_lens(frame, size, is_fisheye), c2w, mask, is_held_out, size)


def read_lens(frame: Frame, actual: tuple[int, int], is_fisheye: bool) -> Lens:
    """The lens of a frame from its keys and those of all frames; `actual` (width, height) is the image's size.

    Raises SceneError for a lens that is invalid, not supported, or was made for an image of another aspect ratio.
    """
    other = next((key for key in OTHER_LENSES if frame.get(key)), None)
    if other is not None:
        raise SceneError(f"{frame.where}: {other} names a lens that is not supported; undistort the photographs first")
    require_read(frame.where, {**frame.shared, **frame.own}, READ_KEYS)
    size, stated = actual, [key for key in ("w", "h") if frame.get(key) is not None]
    if len(stated) == 1:
        raise SceneError(f"{frame.where}: has {stated[0]} alone; give both w and h, or neither")
    if stated:
        size = side(frame.where, "w", frame.get("w")), side(frame.where, "h", frame.get("h"))
        require_same_shape(frame.where, size, actual)
    intrinsics = np.eye(3)
    intrinsics[0, 0], intrinsics[1, 1] = _focal_lengths(frame, size)
    for axis, (key, length) in enumerate(zip(("cx", "cy"), size, strict=True)):
        intrinsics[axis, 2] = number(frame.where, key, frame.get(key, length / 2)) + CORNER_TO_CENTRE
    return Lens(intrinsics, _distortion(frame, is_fisheye), is_fisheye, size)


def require_read(where: str, given: Mapping[str, Any], read: Sequence[str]) -> None:
    """Raises SceneError for keys of lenses beside `read` whose values are not 0."""
    others = {key: value for key, value in given.items() if LENS_KEYS.fullmatch(key) and key not in read}
    odd = sorted(key for key, value in others.items() if not isinstance(value, str) and np.any(value))
    if odd:
        raise SceneError(f"{where}: {' and '.join(odd)} of its lens cannot be applied; undistort the photographs first")


def require_same_shape(where: str, stated: tuple[int, int], actual: tuple[int, int]) -> None:
    """Raises SceneError unless `actual` (width, height) is a scaled `stated`, up to a pixel of rounding."""
    (w, h), (width, height) = stated, actual
    if abs(width * h / w - height) > 1 and abs(height * w / h - width) > 1:
        raise SceneError(
            f"{where}: the cameras are for {w}x{h} and the photograph is {width}x{height}, another aspect ratio "
            "(cropped or rotated?); use the photographs that the cameras were made from"
        )


def _focal_lengths(frame: Frame, size: tuple[int, int]) -> tuple[float, float]:
    """The focal lengths in x and y, pixels; a frame's keys replace the shared ones, and one key gives both axes."""
    for keys in (frame.own, frame.shared):
        focals = [_focal_length(frame.where, keys, axis, length) for axis, length in zip("xy", size, strict=True)]
        known = [focal for focal in focals if focal is not None]
        if known:
            return known[0], known[-1]
    raise SceneError(f"{frame.where}: has no focal length; give fl_x or camera_angle_x, in the frame or for all frames")


def _focal_length(where: str, keys: Mapping[str, object], axis: str, length: int) -> float | None:
    """The focal length along `axis` in pixels, from the first existing key: a length, or a field of view."""
    key = next((key for key in FOCAL_KEYS[axis] if key in keys), None)
    if key is None:
        return None
    value = positive(where, key, keys[key])
    if key.startswith("fl_"):
        return value
    angle = math.radians(value) if key.endswith("_fov") else value
    if angle >= math.pi:
        raise SceneError(f"{where}: {key} is {value:g}, too wide for a pinhole camera (180 degrees); correct it")
    if angle < 1.0 / LONGEST_FOCAL_RATIO:
        raise SceneError(f"{where}: {key} is {value:g}, too narrow for any lens; correct it")
    return 0.5 * length / math.tan(0.5 * angle)


def _distortion(frame: Frame, is_fisheye: bool) -> tuple[float, ...]:
    """OpenCV's distortion coefficients; () if all are 0."""
    given = frame.get("distortion_params")
    names = ("k1", "k2", "k3", "k4", "p1", "p2")  # also nerfstudio's order of distortion_params
    if given is not None and not (isinstance(given, list) and len(given) == len(names)):
        raise SceneError(f"{frame.where}: distortion_params must be the six numbers {' '.join(names)}; correct it")
    values = [frame.get(name, 0.0) for name in names] if given is None else given
    k1, k2, k3, k4, p1, p2 = (number(frame.where, name, value) for name, value in zip(names, values, strict=True))
    if is_fisheye and (p1 or p2):
        raise SceneError(f"{frame.where}: a fisheye lens has no p1 and p2; remove them, or call the lens OPENCV")
    if is_fisheye:
        return (k1, k2, k3, k4)
    if k4:
        raise SceneError(
            f"{frame.where}: k4 belongs to a fisheye lens; set is_fisheye or camera_model to one, or undistort the "
            "photographs first"
        )
    coefficients = (k1, k2, p1, p2, k3) if k3 else (k1, k2, p1, p2)
    return coefficients if any(coefficients) else ()


def is_fisheye(frame: Frame) -> bool:
    """The key of instant-ngp; raises SceneError for anything but true or false, 1 or 0."""
    value = frame.get("is_fisheye", False)
    if not isinstance(value, int | float) or value not in (0, 1):
        raise SceneError(f"{frame.where}: is_fisheye is {kind(value)} and must be true or false; correct it")
    return bool(value)


def _moved(path: Path, frames: Sequence[Frame]) -> list[str]:
    """A note on frames whose photographs have names of another place, and are found by their ends."""
    moved = [frame.name for frame in frames if PureWindowsPath(frame.name).anchor or leads_out(frame.name)]
    if not moved:
        return []
    return [f"{path.name}: {len(moved)} names of another place, such as {_short(moved[0])}: found by their ends"]


def require_distinct(source: Path, posed_images: Sequence[PosedImage]) -> None:
    """Raises SceneError if two frames have the same image."""
    paths: set[Path] = set()
    for posed in posed_images:
        if posed.path in paths:
            raise SceneError(
                f"{source}: the photograph {posed.path.name} ({posed.path}) is listed twice; remove a frame"
            )
        paths.add(posed.path)
