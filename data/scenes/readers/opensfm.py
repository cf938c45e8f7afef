"""The format of OpenSfM (and OpenDroneMap): reconstruction.json.

    folder/reconstruction.json   a list of reconstructions, each with cameras, shots (by the photograph) and points
    folder/images/               the photographs; else anywhere below the folder

https://github.com/mapillary/OpenSfM at 238744c, doc/source/geometry.rst and opensfm/io.py: `rotation` (an axis, as
long as the angle) and `translation` map the world to the camera (x right, y down, z forward). Image coordinates count
from the middle of the image, and lengths are parts of its longer side; the distortion is that of OpenCV. Of several
reconstructions, which have frames of their own, the one with the most shots is read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from data.errors import SceneError, one_line
from data.io.untrusted import MAX_POINTS_BYTES, read_json
from data.parsed_scene import CameraFiles, Lens, ParsedScene
from data.scenes.readers.shots import camera, field, numbers, scene_of_shots, shot, sparse
from data.scenes.readers.transforms import require_read

CAMERA_FILE = "reconstruction.json"
# The keys of the coefficients of each projection, in OpenCV's order.
PLANE, FISHEYE = ("k1", "k2", "p1", "p2", "k3"), ("k1", "k2", "k3", "k4")
KINDS: dict[str, tuple[str, ...]] = dict.fromkeys(("perspective", "simple_radial", "radial", "brown"), PLANE)
KINDS |= dict.fromkeys(("fisheye", "fisheye_opencv"), FISHEYE)


def read_opensfm(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / CAMERA_FILE
    where, content = str(source), read_json(source, MAX_POINTS_BYTES)
    if not isinstance(content, list) or not content:
        raise SceneError(f"{source}: contains no list of reconstructions; export it again")
    sizes = [len(_objects(where, part, "shots")) for part in content]
    largest = content[int(np.argmax(sizes))]
    cameras, shots = _objects(where, largest, "cameras"), []
    for name, given in _objects(where, largest, "shots").items():
        at = f"{source}: {one_line(name)}"
        lens = _lens(at, cameras.get(str(field(at, given, "camera"))))
        w2c = Rotation.from_rotvec(numbers(at, "rotation", given.get("rotation"), 3)).as_matrix()
        centre = -w2c.T @ numbers(at, "translation", given.get("translation"), 3)
        shots.append(shot(at, name, lens, w2c.T, centre))
    cloud = list(_objects(where, largest, "points").values())
    xyz, rgb = ([field(where, point, key) for point in cloud] for key in ("coordinates", "color"))
    without = [name for part in content if part is not largest for name in part.get("shots", {})]  # other frames
    return scene_of_shots(folder, source, shots, sparse(where, xyz, [0] * len(cloud), rgb), without)


def _objects(where: str, part: object, key: str) -> dict[str, dict[str, object]]:
    found = part.get(key, {}) if isinstance(part, dict) else None
    if not isinstance(found, dict) or not all(isinstance(value, dict) for value in found.values()):
        raise SceneError(f"{where}: {key} is no object of objects; export it again")
    return found


def _lens(where: str, given: dict[str, object] | None) -> Lens:
    if given is None:
        raise SceneError(f"{where}: its camera is not in the file; export it again")
    kind = str(given.get("projection_type", "perspective"))
    if kind not in KINDS:
        raise SceneError(f"{where}: its camera {one_line(kind)} is not read; it may be {', '.join(KINDS)}")
    require_read(where, given, KINDS[kind])
    size = numbers(where, "width and height", [given.get("width"), given.get("height")], 2)
    values = [given.get("focal_x", given.get("focal")), given.get("focal_y", given.get("focal"))]
    focal = size.max() * numbers(where, "focal", values, 2)
    offset = size.max() * numbers(where, "c_x and c_y", [given.get("c_x", 0.0), given.get("c_y", 0.0)], 2)
    distortion = [given.get(key, 0.0) for key in KINDS[kind]]
    return camera(where, [focal, (size - 1) / 2 + offset], size, distortion, fish=kind.startswith("fisheye"))
