"""The format of Meshroom (AliceVision): cameras.sfm of the node StructureFromMotion, or another .sfm file in JSON.

    folder/cameras.sfm   views, intrinsics, poses; a file of the node ConvertSfMFormat has structure (points), too
    folder/images/       the photographs; else anywhere below the folder

https://github.com/alicevision/AliceVision at ca8300f, src/aliceVision: `rotation` lists, column by column, the matrix
from the world to the camera (x right, y down, z forward), and `center` is the camera's place (geometry/Pose3.hpp,
sfmDataIO/jsonIO.hpp). The principal point counts from the middle of the image, before version 1.2.1 from its corner.
The focal length is in millimetres of sensorWidth, and pixelRatio is fx / fy before 1.2.5, fy / fx before 1.2.11 and
f / fx (with fy = f) since then; before 1.2.2 pxFocalLength is in pixels (sfmDataIO/jsonIO.cpp). A camera of a rig has
the pose of the rig, and one in the frame of the rig (sfmData/SfMData.hpp, getPose). Distortion is that of
OpenCV (camera/Distortion*.cpp), brown has k1 k2 k3 p1 p2, and radialk3pt is divided by 1 + k1 + k2 + k3. Images are
sampled at whole pixel coordinates (camera/cameraUndistortImage.hpp): pixel (0, 0) is the centre of the first pixel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from data.errors import SceneError, one_line
from data.io.untrusted import MAX_POINTS_BYTES, positive, read_object, text
from data.parsed_scene import CameraFiles, Lens, ParsedScene
from data.scenes.readers.shots import camera, field, numbers, records, scalar, scene_of_shots, shot, sparse

SUFFIX = ".sfm"
NO_DISTORTION = ("none", "pinhole")
# The coefficients of each distortion, by their names before and since version 1.2.8.
COUNTS = {"radial1": 1, "radialk1": 1, "radial3": 3, "radialk3": 3, "radialk3pt": 3, "brown": 5}
FISHEYE = ("fisheye4", "fisheye")


def matches(folder: Path) -> str:
    """The camera file, cameras.sfm before others; "" where it is missing."""
    found = sorted(path.name for path in folder.glob(f"*{SUFFIX}") if path.is_file())
    return min(found, key=lambda name: name != f"cameras{SUFFIX}", default="")


def read_meshroom(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / (matches(folder) or f"cameras{SUFFIX}")
    content, where = read_object(source, MAX_POINTS_BYTES), str(source)
    version = tuple(map(int, numbers(where, "version", content.get("version"), 3).tolist()))
    lenses = {str(entry.get("intrinsicId")): entry for entry in records(where, content, "intrinsics")}
    poses = {str(entry.get("poseId")): entry for entry in records(where, content, "poses")}
    rigs = {str(entry.get("rigId")): entry for entry in records(where, content, "rigs")}
    shots, without = [], []
    for view in records(where, content, "views"):
        name = text(where, "path", view.get("path"))
        at = f"{source}: {one_line(name)}"
        pose, lens = (known.get(str(view.get(key))) for known, key in ((poses, "poseId"), (lenses, "intrinsicId")))
        if pose is None or lens is None:
            without.append(name)
            continue
        rotation, centre = _pose(at, field(at, pose, "pose", "transform"))
        if "rigId" in view and str(view.get("isPoseIndependant", "true")) in ("false", "0"):
            inner = _sub_pose(at, rigs.get(str(view["rigId"])), str(view.get("subPoseId")))
            if inner is None:
                without.append(name)
                continue
            rotation, centre = rotation @ inner[0], centre + rotation @ inner[1]
        shots.append(shot(at, name, _lens(at, lens, version), rotation, centre))
    structure = records(where, content, "structure")
    seen = [len(records(where, point, "observations")) for point in structure]
    xyz, rgb = ([point.get(key) for point in structure] for key in ("X", "color"))
    return scene_of_shots(folder, source, shots, sparse(where, xyz, seen, rgb), without)


def _pose(where: str, given: object) -> tuple[np.ndarray, np.ndarray]:
    """The rotation [3, 3] from the camera to its frame, whose columns are listed as rows, and the centre [3]."""
    rotation = numbers(where, "rotation", field(where, given, "rotation"), 9).reshape(3, 3)
    return rotation, numbers(where, "center", field(where, given, "center"), 3)


def _sub_pose(where: str, rig: object, index: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The pose of a camera in the frame of its rig; None if it was not estimated."""
    known = records(where, rig, "subPoses")
    entry = {str(number): pose for number, pose in enumerate(known)}.get(index)
    if entry is None:
        raise SceneError(f"{where}: its rig has no pose {one_line(index)}; export the cameras again")
    return None if entry.get("status") == "uninitialized" else _pose(where, field(where, entry, "pose"))


def _lens(where: str, given: dict[str, object], version: tuple[int, ...]) -> Lens:
    size = numbers(where, "width and height", [given.get("width"), given.get("height")], 2)
    centre = numbers(where, "principalPoint", given.get("principalPoint"), 2)
    if version >= (1, 2, 1):
        centre = centre + size / 2
    focal, distortion, fish = _focal(where, given, version, size[0]), tuple[Any, ...](), False
    kind = str(given.get("type")).lower()
    kind = str(given.get("distortionType", kind)).lower() if kind == "pinhole" else kind
    if kind in COUNTS:
        k = numbers(where, "distortionParams", given.get("distortionParams") or [0] * COUNTS[kind], COUNTS[kind])
        focal = focal / (1 + k.sum()) if kind == "radialk3pt" else focal
        distortion = (*k[:1], 0, 0, 0) if len(k) == 1 else (*k[:2], *(k[3:] if len(k) == 5 else (0, 0)), k[2])
    elif kind in FISHEYE:
        distortion, fish = (*numbers(where, "distortionParams", given.get("distortionParams") or [0] * 4, 4),), True
    if kind not in (*NO_DISTORTION, *COUNTS, *FISHEYE) or given.get("undistortionType", "none") != "none":
        raise SceneError(f"{where}: its lens {one_line(kind)} is not read; export undistorted photographs")
    return camera(where, [focal, centre], size, distortion, fish)


def _focal(where: str, given: dict[str, object], version: tuple[int, ...], width: float) -> np.ndarray:
    """The focal lengths [2] in pixels."""
    if version < (1, 2, 2):
        found = numbers(where, "pxFocalLength", given.get("pxFocalLength"), 2 if version >= (1, 2, 0) else 1)
        return np.broadcast_to(found, 2)
    defaults = {"focalLength": None, "sensorWidth": 36, "pixelRatio": 1}
    focal, sensor, ratio = (positive(where, key, scalar(where, given, key, value)) for key, value in defaults.items())
    along = (1, 1 / ratio) if version < (1, 2, 5) else (1, ratio) if version < (1, 2, 11) else (1 / ratio, 1)
    return focal / sensor * width * np.array(along)
