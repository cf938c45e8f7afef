"""The camera files of four programs for structure from motion: OpenMVG, Meshroom, OpenSfM and Bundler.

Photographs are in images/, else anywhere below the folder. Distortion is that of OpenCV.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from data.errors import SceneError, one_line
from data.io.images import image_size, photographs_folder
from data.io.named_files import named_file
from data.io.untrusted import MAX_POINTS_BYTES, positive, read_content, read_json, read_object, text
from data.parsed_scene import CameraFiles, Lens, ParsedScene
from data.scenes.readers.shots import camera, field, numbers, records, scalar, scene_of_shots, shot, sparse
from data.scenes.readers.transforms import require_read

# OpenMVG: sfm_data.json of its SfM, or of openMVG_main_ConvertSfM_DataFormat, with views, intrinsics, extrinsics (poses
# by the id_pose of views) and structure (points). https://github.com/openMVG/openMVG at 6d6b1dd, src/openMVG:
# `rotation` maps the world to the camera (x right, y down, z forward) and `center` is the camera's place
# (geometry/pose3.hpp); disto_t2 has k1 k2 k3 p1 p2 (cameras/Camera_Pinhole_*.hpp). Older versions wrote the pinhole of
# disto_t2 as value0. Images are sampled at whole pixel coordinates (cameras/Camera_undistort_image.hpp): pixel (0, 0)
# is the centre of the first pixel, as here.
OPENMVG_FILE = "sfm_data.json"
# The key of each lens model, with the places of its coefficients in OpenCV's order; None: 0.
ORDERS = {"disto_k1": (0, None, None, None), "disto_k3": (0, 1, None, None, 2), "disto_t2": (0, 1, 3, 4, 2)}
ORDERS |= {"fisheye": (0, 1, 2, 3)}


def read_openmvg(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / OPENMVG_FILE
    content, where = read_object(source, MAX_POINTS_BYTES), str(source)
    lenses = {
        str(entry.get("key")): field(where, entry, "value", "ptr_wrapper", "data")
        for entry in records(where, content, "intrinsics")
    }
    poses = {str(entry.get("key")): entry.get("value") for entry in records(where, content, "extrinsics")}
    shots, without = [], []
    for view in (field(where, entry, "value", "ptr_wrapper", "data") for entry in records(where, content, "views")):
        name = text(where, "filename", field(where, view, "filename"))
        pose, lens = (known.get(str(view.get(key))) for known, key in ((poses, "id_pose"), (lenses, "id_intrinsic")))
        if pose is None or lens is None:
            without.append(name)
            continue
        at = f"{source}: {one_line(name)}"
        rotation = numbers(at, "rotation", field(at, pose, "rotation"), 9).reshape(3, 3).T
        centre = numbers(at, "center", field(at, pose, "center"), 3)
        path = f"{view.get('local_path') or '.'}/{name}"
        shots.append(shot(at, path, _openmvg_lens(at, lens), rotation, centre))
    structure = [field(where, entry, "value") for entry in records(where, content, "structure")]
    n_views = [len(records(where, point, "observations")) for point in structure]
    points = sparse(where, [field(where, point, "X") for point in structure], n_views)
    return scene_of_shots(folder, source, shots, points, without)


def _openmvg_lens(where: str, data: Any) -> Lens:
    base = data.get("value0") if isinstance(data, dict) else None
    data = {**data, **base} if isinstance(base, dict) else data
    if not isinstance(data, dict) or "focal_length" not in data:
        raise SceneError(f"{where}: its intrinsic is no pinhole or fisheye (spherical?); cut it into such views first")
    key = next((key for key in ORDERS if key in data), "")
    require_read(where, data, [key])
    order = ORDERS.get(key, ())
    given = numbers(where, key, data[key], sum(place is not None for place in order)) if key else ()
    pinhole = [[data["focal_length"]] * 2, data.get("principal_point")]
    distortion = [0.0 if place is None else given[place] for place in order]
    return camera(where, pinhole, [data.get("width"), data.get("height")], distortion, fish=key == "fisheye")


# Meshroom (AliceVision): cameras.sfm of the node StructureFromMotion, or another .sfm file in JSON, with views,
# intrinsics, poses; a file of the node ConvertSfMFormat has structure (points), too.
# https://github.com/alicevision/AliceVision at ca8300f, src/aliceVision: `rotation` lists, column by column, the matrix
# from the world to the camera (x right, y down, z forward), and `center` is the camera's place (geometry/Pose3.hpp,
# sfmDataIO/jsonIO.hpp). The principal point counts from the middle of the image, before version 1.2.1 from its corner.
# The focal length is in millimetres of sensorWidth, and pixelRatio is fx / fy before 1.2.5, fy / fx before 1.2.11 and f
# / fx (with fy = f) since then; before 1.2.2 pxFocalLength is in pixels (sfmDataIO/jsonIO.cpp). A camera of a rig has
# the pose of the rig, and one in the frame of the rig (sfmData/SfMData.hpp, getPose). Distortion:
# camera/Distortion*.cpp, brown has k1 k2 k3 p1 p2, and radialk3pt is divided by 1 + k1 + k2 + k3. Images are sampled at
# whole pixel coordinates (camera/cameraUndistortImage.hpp): pixel (0, 0) is the centre of the first pixel.
MESHROOM_SUFFIX = ".sfm"
NO_DISTORTION = ("none", "pinhole")
# The coefficients of each distortion, by their names before and since version 1.2.8.
COUNTS = {"radial1": 1, "radialk1": 1, "radial3": 3, "radialk3": 3, "radialk3pt": 3, "brown": 5}
MESHROOM_FISHEYE = ("fisheye4", "fisheye")


def matches_meshroom(folder: Path) -> str:
    """The camera file, cameras.sfm before others; "" where it is missing."""
    names = sorted(path.name for path in folder.glob(f"*{MESHROOM_SUFFIX}") if path.is_file())
    return min(names, key=lambda name: name != f"cameras{MESHROOM_SUFFIX}", default="")


def read_meshroom(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / (matches_meshroom(folder) or f"cameras{MESHROOM_SUFFIX}")
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
        rotation, centre = _meshroom_pose(at, field(at, pose, "pose", "transform"))
        if "rigId" in view and str(view.get("isPoseIndependant", "true")) in ("false", "0"):
            index, of_rig = str(view.get("subPoseId")), records(at, rigs.get(str(view["rigId"])), "subPoses")
            own = {str(number): entry for number, entry in enumerate(of_rig)}.get(index)
            if own is None:
                raise SceneError(f"{at}: its rig has no pose {one_line(index)}; export the cameras again")
            if own.get("status") == "uninitialized":
                without.append(name)
                continue
            own_rotation, own_centre = _meshroom_pose(at, field(at, own, "pose"))
            rotation, centre = rotation @ own_rotation, centre + rotation @ own_centre
        shots.append(shot(at, name, _meshroom_lens(at, lens, version), rotation, centre))
    structure = records(where, content, "structure")
    n_views = [len(records(where, point, "observations")) for point in structure]
    xyz, rgb = ([point.get(key) for point in structure] for key in ("X", "color"))
    return scene_of_shots(folder, source, shots, sparse(where, xyz, n_views, rgb), without)


def _meshroom_pose(where: str, given: object) -> tuple[np.ndarray, np.ndarray]:
    """The rotation [3, 3] from the camera to its frame, whose columns are listed as rows, and the centre [3]."""
    rotation = numbers(where, "rotation", field(where, given, "rotation"), 9).reshape(3, 3)
    return rotation, numbers(where, "center", field(where, given, "center"), 3)


def _meshroom_lens(where: str, given: dict[str, object], version: tuple[int, ...]) -> Lens:
    size = numbers(where, "width and height", [given.get("width"), given.get("height")], 2)
    centre = numbers(where, "principalPoint", given.get("principalPoint"), 2)
    if version >= (1, 2, 1):
        centre = centre + size / 2
    if version < (1, 2, 2):
        focal = numbers(where, "pxFocalLength", given.get("pxFocalLength"), 2 if version >= (1, 2, 0) else 1)
        focal = np.broadcast_to(focal, 2)
    else:
        defaults = {"focalLength": None, "sensorWidth": 36, "pixelRatio": 1}
        values = (positive(where, key, scalar(where, given, key, value)) for key, value in defaults.items())
        millimetres, sensor, ratio = values
        along = (1, 1 / ratio) if version < (1, 2, 5) else (1, ratio) if version < (1, 2, 11) else (1 / ratio, 1)
        focal = millimetres / sensor * size[0] * np.array(along)
    distortion, fish = tuple[Any, ...](), False
    kind = str(given.get("type")).lower()
    kind = str(given.get("distortionType", kind)).lower() if kind == "pinhole" else kind
    if kind in COUNTS:
        k = numbers(where, "distortionParams", given.get("distortionParams") or [0] * COUNTS[kind], COUNTS[kind])
        focal = focal / (1 + k.sum()) if kind == "radialk3pt" else focal
        distortion = (*k[:1], 0, 0, 0) if len(k) == 1 else (*k[:2], *(k[3:] if len(k) == 5 else (0, 0)), k[2])
    elif kind in MESHROOM_FISHEYE:
        distortion, fish = (*numbers(where, "distortionParams", given.get("distortionParams") or [0] * 4, 4),), True
    elif kind not in NO_DISTORTION:
        raise SceneError(f"{where}: its lens {one_line(kind)} is not read; export undistorted photographs")
    if given.get("undistortionType", "none") != "none":
        raise SceneError(f"{where}: its lens {one_line(kind)} is not read; export undistorted photographs")
    return camera(where, [focal, centre], size, distortion, fish)


# OpenSfM (and OpenDroneMap): reconstruction.json, a list of reconstructions, each with cameras, shots (by the
# photograph) and points. https://github.com/mapillary/OpenSfM at 238744c, doc/source/geometry.rst and opensfm/io.py:
# `rotation` (an axis, as long as the angle) and `translation` map the world to the camera (x right, y down, z forward).
# Image coordinates count from the middle of the image, and lengths are parts of its longer side. Of several
# reconstructions, which have frames of their own, the one with the most shots is read.
OPENSFM_FILE = "reconstruction.json"
# The keys of the coefficients of each projection, in OpenCV's order.
PLANE, FISHEYE = ("k1", "k2", "p1", "p2", "k3"), ("k1", "k2", "k3", "k4")
PROJECTIONS: dict[str, tuple[str, ...]] = dict.fromkeys(("perspective", "simple_radial", "radial", "brown"), PLANE)
PROJECTIONS |= dict.fromkeys(("fisheye", "fisheye_opencv"), FISHEYE)


def read_opensfm(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / OPENSFM_FILE
    where, content = str(source), read_json(source, MAX_POINTS_BYTES)
    if not isinstance(content, list) or not content:
        raise SceneError(f"{source}: contains no list of reconstructions; export it again")
    sizes = [len(_objects(where, part, "shots")) for part in content]
    largest = content[int(np.argmax(sizes))]
    cameras, shots = _objects(where, largest, "cameras"), []
    for name, given in _objects(where, largest, "shots").items():
        at = f"{source}: {one_line(name)}"
        lens = _opensfm_lens(at, cameras.get(str(field(at, given, "camera"))))
        w2c = Rotation.from_rotvec(numbers(at, "rotation", given.get("rotation"), 3)).as_matrix()
        centre = -w2c.T @ numbers(at, "translation", given.get("translation"), 3)
        shots.append(shot(at, name, lens, w2c.T, centre))
    cloud = list(_objects(where, largest, "points").values())
    xyz, rgb = ([field(where, point, key) for point in cloud] for key in ("coordinates", "color"))
    without = [name for part in content if part is not largest for name in part.get("shots", {})]  # other frames
    return scene_of_shots(folder, source, shots, sparse(where, xyz, [0] * len(cloud), rgb), without)


def _objects(where: str, part: object, key: str) -> dict[str, dict[str, object]]:
    """The object of objects `key`, {} if it is missing; raises SceneError for anything else."""
    entries = part.get(key, {}) if isinstance(part, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(value, dict) for value in entries.values()):
        raise SceneError(f"{where}: {key} is no object of objects; export it again")
    return entries


def _opensfm_lens(where: str, given: dict[str, object] | None) -> Lens:
    if given is None:
        raise SceneError(f"{where}: its camera is not in the file; export it again")
    kind = str(given.get("projection_type", "perspective"))
    if kind not in PROJECTIONS:
        raise SceneError(f"{where}: its camera {one_line(kind)} is not read; it may be {', '.join(PROJECTIONS)}")
    require_read(where, given, PROJECTIONS[kind])
    size = numbers(where, "width and height", [given.get("width"), given.get("height")], 2)
    values = [given.get("focal_x", given.get("focal")), given.get("focal_y", given.get("focal"))]
    focal = size.max() * numbers(where, "focal", values, 2)
    offset = size.max() * numbers(where, "c_x and c_y", [given.get("c_x", 0.0), given.get("c_y", 0.0)], 2)
    distortion = [given.get(key, 0.0) for key in PROJECTIONS[kind]]
    return camera(where, [focal, (size - 1) / 2 + offset], size, distortion, fish=kind.startswith("fisheye"))


# Bundler v0.3, which VisualSFM, Metashape and COLMAP write, too: bundle/bundle.out has focal length, k1, k2 and pose of
# each camera, and points; it may also be in the folder itself, as bundle.rd.out, bundler.out or NAME.bundle.out.
# list.txt (or NAME.list.txt) there, or in the folder itself, names the photographs in the order of the cameras.
# https://www.cs.cornell.edu/~snavely/bundler/bundler-v0.4-manual.html, "Output format and scene representation": R and
# t map the world to a camera that looks along -z with y up. With p = -(x, y) / z and r^2 = |p|^2, f (1 + k1 r^2 + k2
# r^4) p counts from the middle of the image, y up. A focal length of 0 marks a photograph without a pose.
BUNDLER_HEADER = "# Bundle file v0.3"
BUNDLER_FILE = re.compile(r"(.*\.)?bundler?(\.rd)?\.out", re.IGNORECASE)
FOCAL_WORDS = re.compile(r"\d+( [\d.eE+-]+)?")  # Bundler's own list has 0 and a focal length after the name
FLIP = np.diag([1.0, -1.0, -1.0])


def matches_bundler(folder: Path) -> str:
    """The camera file; "" where it is missing."""
    places = [place for place in (folder, folder / "bundle") if place.is_dir()]
    paths = sorted(path for place in places for path in place.glob("*.out") if BUNDLER_FILE.fullmatch(path.name))
    return paths[0].relative_to(folder).as_posix() if paths else ""


def read_bundler(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / (matches_bundler(folder) or "bundle.out")
    header, _, body = read_content(source, MAX_POINTS_BYTES).decode("utf-8-sig", "replace").partition("\n")
    if header.strip() != BUNDLER_HEADER:
        raise SceneError(f"{source}: does not begin with {BUNDLER_HEADER!r}, the version that is read; export it again")
    xyz, rgb, n_views = [], [], list[int]()
    try:
        values = np.array(body.split(), dtype=np.float64)
        count, n_points = map(int, values[:2].tolist())
        cameras, at = values[2 : 2 + 15 * count].reshape(count, 15), 2 + 15 * count
        if n_points < 0 or not np.isfinite(cameras).all():
            raise ValueError("a number is out of range")
        for _ in range(n_points):
            xyz.append(values[at : at + 3])
            rgb.append(values[at + 3 : at + 6])
            n_views.append(int(values[at + 6]))
            if n_views[-1] < 0:
                raise ValueError("a point has a negative number of views")
            at += 7 + 4 * n_views[-1]
    except (ValueError, IndexError, OverflowError) as error:
        raise SceneError(f"{source}: is truncated or damaged; export it again") from error
    names = _bundler_names(folder, source)
    if len(names) != len(cameras):
        raise SceneError(
            f"{source}: has {len(cameras)} cameras and its list {len(names)} photographs; export both again"
        )
    place, shots, without = photographs_folder(folder) or folder, [], []
    for name, numbers_of_camera in zip(names, cameras, strict=True):
        focal, k1, k2 = numbers_of_camera[:3]
        if focal == 0:
            without.append(name)
            continue
        where, path = f"{source}: {one_line(name)}", named_file(place, name)
        size = np.array(image_size(path) if path else (2, 2))  # a missing photograph is left out later
        lens = camera(where, [[focal] * 2, (size - 1) / 2], size, (k1, k2, 0, 0))
        w2c = FLIP @ numbers_of_camera[3:12].reshape(3, 3)
        shots.append(shot(where, name, lens, w2c.T, -w2c.T @ FLIP @ numbers_of_camera[12:]))
    return scene_of_shots(folder, source, shots, sparse(str(source), xyz, n_views, rgb), without)


def _bundler_names(folder: Path, source: Path) -> list[str]:
    """The names of the photographs in the list, without their focal lengths."""
    own = re.sub(r"bundler?(\.rd)?\.out$", "list.txt", source.name, flags=re.IGNORECASE)
    places = [source.parent / own, source.parent / "list.txt", folder / "list.txt"]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise SceneError(f"{source}: has no list.txt beside it, which names the photographs; put it there")
    names = []
    for line in filter(None, map(str.strip, read_content(path).decode("utf-8-sig", "replace").splitlines())):
        parts = (line.rsplit(maxsplit=count) for count in (2, 1))
        names.append(next((name for name, *last in parts if FOCAL_WORDS.fullmatch(" ".join(last))), line))
    return names
