"""Camera paths: around the object, between photographs, or from a file.

The file is JSON. `keys` is a list of `camera_to_world` (four rows of four numbers, in the world frame of the scene's
cameras; x right, y up, looking along -z, as in Blender) and `fov`, the vertical field of view in degrees. Further
entries: `width`, `height`, `fps`, `seconds`, and `is_cycle`, which returns to the first key.

Files of nerfstudio's viewer are read, too: `camera_path` contains a camera for every frame,
https://docs.nerf.studio/quickstart/viewer_quickstart.html. Its training transforms the world by
dataparser_transforms.json; the transform is inverted if that file is in the same folder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.cameras import LONGEST_FOCAL_RATIO, affine, interpolate_pose, mean_up
from data.errors import SceneError, UserError
from data.io import untrusted
from data.limits import FARTHEST_CAMERA
from data.scenes.scene import Posed, radius_of
from data.scenes.scene_checks import require_view
from models.requests import FASTEST, ORBIT, SLOWEST, VideoRequest, view_indices

BLENDER_AXES = np.diag([1.0, -1.0, -1.0, 1.0])  # from y up and -z forwards to y down and z forwards
TRANSFORM_FILE = "dataparser_transforms.json"
ROTATION_TOLERANCE = 1e-2  # tolerance of axis lengths and right angles, for files with few digits
MOST_FRAMES = 100_000
MOST_FRAME_PIXELS = 1 << 26  # pixels of a frame: 8192 x 8192, more than players support
WIDEST = 170.0  # degrees
FILM_LINES = 720  # height of a film of higher photographs in pixels, at least
NARROWEST_FOV = math.degrees(1.0 / LONGEST_FOCAL_RATIO)


@dataclass(frozen=True, eq=False)
class Shot:
    """The camera of one frame."""

    intrinsics: np.ndarray  # [3, 3]
    c2w: np.ndarray  # [4, 4], camera to working frame


@dataclass(frozen=True, eq=False)
class CameraPath:
    """The cameras of a video."""

    name: str
    shots: tuple[Shot, ...]
    width: int
    height: int
    fps: float


def chosen_path(request: VideoRequest, views: Posed) -> tuple[CameraPath, int]:
    """The camera path of a video and the reduction factor of its frames; raises UserError for an invalid path."""
    if request.path == ORBIT:
        path = orbit(views, request.seconds, request.fps)
    elif numbers := view_indices(request.path):
        for view in numbers:
            require_view(views, view)
        path = between(views, numbers, request.seconds, request.fps)
    else:
        path = from_file(Path(request.path), views)
        return path, request.level or 1
    return path, request.level or film_level(path.height)


def film_level(height: int) -> int:
    """The largest reduction factor that leaves FILM_LINES lines; 1 for lower photographs."""
    return max(1, height // FILM_LINES)


def orbit(scene: Posed, seconds: float, fps: float) -> CameraPath:
    """A circle around the origin, at the mean height and distance of the cameras, with the first intrinsics."""
    up = mean_up(scene.c2w)
    centres = scene.c2w[:, :3, 3]
    distance, height = float(np.median(np.linalg.norm(centres, axis=1))), float(np.mean(centres @ up))
    height = float(np.clip(height, -0.9 * distance, 0.9 * distance))
    front = centres.mean(axis=0) - (centres.mean(axis=0) @ up) * up
    if np.linalg.norm(front) < 0.05 * distance:
        front = np.cross(up, np.eye(3)[np.argmin(np.abs(up))])
    front /= np.linalg.norm(front)
    side, flat = np.cross(up, front), math.sqrt(distance**2 - height**2)
    count = _count(seconds, fps, "--seconds, --fps")
    turns = np.linspace(0.0, 2.0 * np.pi, count, endpoint=False)
    eyes = [flat * (math.cos(turn) * front + math.sin(turn) * side) + height * up for turn in turns]
    width, tall = scene.size(0)
    shots = tuple(Shot(scene.intrinsics[0], looking_at_middle(eye, up)) for eye in eyes)
    return CameraPath("orbit", shots, width, tall, fps)


def looking_at_middle(eye: np.ndarray, up: np.ndarray) -> np.ndarray:
    """The pose [4, 4] at `eye` [3] that looks at the origin, with `up` [3] upwards in the image."""
    forward = -eye / np.linalg.norm(eye)
    right = np.cross(forward, up)
    right /= np.linalg.norm(right)
    return affine(np.stack([right, np.cross(forward, right), forward], axis=1), eye)


def between(scene: Posed, views: Sequence[int], seconds: float, fps: float) -> CameraPath:
    """A path through the cameras of photographs, with the first one's intrinsics."""
    poses = [scene.c2w[view] for view in views]
    shots = tuple(Shot(scene.intrinsics[views[0]], pose) for pose in _along(poses, _count(seconds, fps, "--seconds")))
    return CameraPath("_".join(map(str, views)), shots, *scene.size(views[0]), fps)


def from_file(path: Path, scene: Posed) -> CameraPath:
    """The path in a file; raises UserError naming an invalid entry."""
    try:
        content = untrusted.read_object(path)
        fps = untrusted.positive(str(path), "fps", content.get("fps", VideoRequest.fps))
        if not SLOWEST <= fps <= FASTEST:
            raise SceneError(f"{path}: fps is {fps:g} and must be {SLOWEST:g} to {FASTEST:g}; correct it")
        if "camera_path" in content:
            width, height, shots = _of_nerfstudio(path, content, scene)
        else:
            width, height, shots = _of_keys(path, content, scene, fps)
    except SceneError as error:
        raise UserError(f"--path {error}") from error
    if width * height > MOST_FRAME_PIXELS:
        raise UserError(f"--path {path}: frames of {width} x {height} are too large; make width and height smaller")
    return CameraPath(path.stem, shots, width, height, fps)


def _of_keys(path: Path, content: dict[str, object], scene: Posed, fps: float) -> tuple[int, int, tuple[Shot, ...]]:
    """Width, height and cameras of a file with `keys`."""
    where = str(path)
    keys = content.get("keys")
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise SceneError(
            f"{where}: contains neither a list `keys` of objects nor a `camera_path` of nerfstudio; see docs/looking.md"
        )
    if len(keys) < 2:
        raise SceneError(f"{where}: keys has {len(keys)} entries, and a path needs at least two; add one")
    own_width, own_height = scene.size(0)
    width = untrusted.side(where, "width", content.get("width", own_width))
    height = untrusted.side(where, "height", content.get("height", own_height))
    poses = [_pose(f"{where}: keys[{at}]", key, scene, np.eye(4)) for at, key in enumerate(keys)]
    own_fov = math.degrees(2.0 * math.atan(0.5 * own_height / scene.intrinsics[0, 1, 1]))
    views = [_fov(f"{where}: keys[{at}]", key.get("fov", content.get("fov", own_fov))) for at, key in enumerate(keys)]
    is_cycle = content.get("is_cycle", False)
    if not isinstance(is_cycle, bool):
        raise SceneError(f"{where}: is_cycle is {untrusted.kind(is_cycle)} and must be true or false; correct it")
    if is_cycle:
        poses, views = [*poses, poses[0]], [*views, views[0]]
    seconds = untrusted.positive(where, "seconds", content.get("seconds", VideoRequest.seconds))
    count = _count(seconds, fps, f"--path {where}: seconds, fps")
    fovs = np.interp(np.linspace(0.0, len(views) - 1.0, count), np.arange(len(views)), views)
    lenses = [lens(width, height, fov) for fov in fovs]
    return width, height, tuple(Shot(sight, pose) for sight, pose in zip(lenses, _along(poses, count), strict=True))


def _of_nerfstudio(path: Path, content: dict[str, object], scene: Posed) -> tuple[int, int, tuple[Shot, ...]]:
    """Width, height and cameras of a file of nerfstudio's viewer."""
    where = str(path)
    if content.get("camera_type", "perspective") != "perspective":
        raise SceneError(
            f"{where}: camera_type is {content['camera_type']!r}, and only perspective cameras are supported; "
            "export the path with them"
        )
    width = untrusted.side(where, "render_width", content.get("render_width"))
    height = untrusted.side(where, "render_height", content.get("render_height"))
    cameras = untrusted.objects(where, "camera_path", content)
    if not 2 <= len(cameras) <= MOST_FRAMES:
        raise SceneError(f"{where}: camera_path has {len(cameras)} cameras and must have 2 to {MOST_FRAMES}")
    undone = _undone(path.parent / TRANSFORM_FILE)
    shots = []
    for at, camera in enumerate(cameras):
        name = f"{where}: camera_path[{at}]"
        shots.append(Shot(lens(width, height, _fov(name, camera.get("fov"))), _pose(name, camera, scene, undone)))
    return width, height, tuple(shots)


def key_of(scene: Posed, c2w: np.ndarray, fov: float) -> dict[str, object]:
    """The entry of `keys` for a camera [4, 4] of the working frame with a vertical field of view in degrees."""
    pose = scene.scene_to_world @ c2w
    pose[:3, :3] /= radius_of(scene)  # a rotation again
    return {"fov": float(np.clip(fov, NARROWEST_FOV, WIDEST)), "camera_to_world": (pose @ BLENDER_AXES).tolist()}


def _undone(path: Path) -> np.ndarray:
    """[4, 4] from nerfstudio's training frame to the world; its rotation part has no scale."""
    if not path.is_file():
        return np.eye(4)
    content = untrusted.read_object(path)
    transform = untrusted.matrix(str(path), "transform", content.get("transform"))
    scale = untrusted.positive(str(path), "scale", content.get("scale"))
    with np.errstate(all="ignore"):  # numbers may overflow
        if not ROTATION_TOLERANCE <= abs(np.linalg.det(transform[:3, :3])) <= 1.0 / ROTATION_TOLERANCE:
            raise SceneError(f"{path}: transform is singular or not a rotation; write it again")
        undone = np.linalg.inv(transform) @ np.diag([np.divide(1.0, scale)] * 3 + [1.0])
    if not np.abs(undone).max() < FARTHEST_CAMERA**2:
        raise SceneError(f"{path}: scale {scale:g} is too small, or transform too large; write it again")
    return undone


def _pose(where: str, entry: dict[str, object], scene: Posed, to_world: np.ndarray) -> np.ndarray:
    """The camera of an entry in the working frame, [4, 4]."""
    value = entry.get("camera_to_world")
    if isinstance(value, list) and len(value) == 16 and not any(isinstance(item, list) for item in value):
        value = [value[row : row + 4] for row in range(0, 16, 4)]
    pose = untrusted.matrix(where, "camera_to_world", value)
    axes = pose[:3, :3]
    with np.errstate(all="ignore"):  # numbers may overflow
        deviation = np.abs(axes.T @ axes - np.eye(3)).max()
    if not deviation <= ROTATION_TOLERANCE or np.linalg.det(axes) < 0:
        raise SceneError(
            f"{where}: camera_to_world contains no rotation (axes of length 1 at right angles); correct it"
        )
    moved = np.linalg.inv(scene.scene_to_world) @ to_world @ pose @ BLENDER_AXES
    if not np.linalg.norm(moved[:3, 3]) <= FARTHEST_CAMERA:
        raise SceneError(
            f"{where}: camera_to_world is {np.linalg.norm(moved[:3, 3]):.3g} radii from the unit sphere, beyond "
            f"{FARTHEST_CAMERA:g}; correct its last column"
        )
    left, _, right = np.linalg.svd(moved[:3, :3])
    moved[:3, :3] = left @ right  # the nearest rotation, which removes scales
    return moved


def _fov(where: str, value: object) -> float:
    """The vertical field of view in degrees."""
    fov = untrusted.positive(where, "fov", value)
    if not NARROWEST_FOV <= fov <= WIDEST:
        raise SceneError(f"{where}: fov is {fov:g} degrees and must be {NARROWEST_FOV:.1g} to {WIDEST:g}; correct it")
    return fov


def lens(width: int, height: int, fov: float) -> np.ndarray:
    """The intrinsics [3, 3] for a vertical field of view in degrees: square pixels, principal point at the centre."""
    focal = 0.5 * height / math.tan(0.5 * math.radians(fov))
    return np.array([[focal, 0.0, 0.5 * (width - 1)], [0.0, focal, 0.5 * (height - 1)], [0.0, 0.0, 1.0]])


def _along(poses: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
    """`count` poses from the first to the last of `poses`, equal times between neighbouring poses."""
    places = np.linspace(0.0, len(poses) - 1.0, count)
    starts = np.minimum(places.astype(int), len(poses) - 2)
    return [interpolate_pose(poses[at], poses[at + 1], place - at) for place, at in zip(places, starts, strict=True)]


def _count(seconds: float, fps: float, where: str) -> int:
    """The number of frames; raises UserError for too few or too many."""
    count = round(min(seconds * fps, 1e9))
    if not 2 <= count <= MOST_FRAMES:
        raise UserError(
            f"{where}: {seconds:g} s at {fps:g} frames per second are {count} frames; the number must be 2 to "
            f"{MOST_FRAMES}"
        )
    return count
