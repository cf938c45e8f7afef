"""The format of OpenMVG: sfm_data.json of its SfM, or of openMVG_main_ConvertSfM_DataFormat.

    folder/sfm_data.json   views, intrinsics, extrinsics (poses by the id_pose of views) and structure (points)
    folder/images/         the photographs; else anywhere below the folder

https://github.com/openMVG/openMVG at 6d6b1dd, src/openMVG: `rotation` maps the world to the camera (x right, y down, z
forward) and `center` is the camera's place (geometry/pose3.hpp); distortion is that of OpenCV (cameras/
Camera_Pinhole_*.hpp), disto_t2 has k1 k2 k3 p1 p2. Older
versions wrote the pinhole of disto_t2 as value0. Images are sampled at whole pixel coordinates
(cameras/Camera_undistort_image.hpp): pixel (0, 0) is the centre of the first pixel, as here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data.errors import SceneError, one_line
from data.io.untrusted import MAX_POINTS_BYTES, read_object, text
from data.parsed_scene import CameraFiles, Lens, ParsedScene
from data.scenes.readers.shots import camera, field, numbers, records, scene_of_shots, shot, sparse
from data.scenes.readers.transforms import require_read

CAMERA_FILE = "sfm_data.json"
# The key of each lens model, with the places of its coefficients in OpenCV's order; None: 0.
ORDERS = {"disto_k1": (0, None, None, None), "disto_k3": (0, 1, None, None, 2), "disto_t2": (0, 1, 3, 4, 2)}
ORDERS |= {"fisheye": (0, 1, 2, 3)}


def read_openmvg(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / CAMERA_FILE
    content = read_object(source, MAX_POINTS_BYTES)
    where = str(source)
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
        shots.append(shot(at, f"{view.get('local_path') or '.'}/{name}", _lens(at, lens), rotation, centre))
    structure = [field(where, entry, "value") for entry in records(where, content, "structure")]
    seen = [len(records(where, point, "observations")) for point in structure]
    points = sparse(where, [field(where, point, "X") for point in structure], seen)
    return scene_of_shots(folder, source, shots, points, without)


def _lens(where: str, data: Any) -> Lens:
    base = data.get("value0") if isinstance(data, dict) else None
    data = {**data, **base} if isinstance(base, dict) else data
    if not isinstance(data, dict) or "focal_length" not in data:
        raise SceneError(f"{where}: its intrinsic is no pinhole or fisheye (spherical?); cut it into such views first")
    keys = [key for key in ORDERS if key in data]
    require_read(where, data, keys[:1])
    key = next(iter(keys), "")
    order = ORDERS.get(key, ())
    given = numbers(where, key, data[key], sum(place is not None for place in order)) if key else ()
    pinhole = [[data["focal_length"]] * 2, data.get("principal_point")]
    distortion = [0.0 if place is None else given[place] for place in order]
    return camera(where, pinhole, [data.get("width"), data.get("height")], distortion, fish=key == "fisheye")
