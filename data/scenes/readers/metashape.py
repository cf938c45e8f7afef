"""The format of Agisoft Metashape: cameras.xml, as File > Export > Export Cameras writes it.

    folder/cameras.xml   one chunk: sensors with their calibration, cameras with label and transform
    folder/images/       the photographs, named by the labels, with or without suffix; else anywhere below the folder

Lens models: Metashape Professional user manual, appendix D, "Camera models". With x = X / Z, y = Y / Z (fisheye: scaled
so that their length is the angle from the axis), r^2 = x^2 + y^2 and R = 1 + k1 r^2 + k2 r^4 + k3 r^6 + k4 r^8:

    x' = x R + p1 (r^2 + 2 x^2) + 2 p2 x y        u = w / 2 + cx + f x' + b1 x' + b2 y'
    y' = y R + p2 (r^2 + 2 y^2) + 2 p1 x y        v = h / 2 + cy + f y'

OpenCV's p1 and p2 are exchanged. u and v count from the corner of the image. PhotoScan 1.2 wrote fx and fy for f + b1
and f, and cx and cy from the corner. A camera's transform maps its frame (x right, y down, z forward) to that of its
component, or of the chunk; the transform of the component, or else of the chunk, if there is one, maps it to the world.
Components without a transform have frames of their own: the largest set of cameras with one frame is used. A camera
with `master_id` has the pose of its master and, relative to that, the rotation and translation of its sensor.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from data.errors import SceneError, listed, one_line
from data.io.images import image_size, photographs_folder
from data.io.named_files import masks_folder, spelled_below, spelled_file
from data.io.untrusted import positive, read_xml, rigid_pose, side
from data.parsed_scene import CameraFiles, Lens, ParsedScene, PosedImage
from data.scenes.readers.shots import numbers, scalar, with_masks
from data.scenes.readers.transforms import require_most, require_same_shape

METASHAPE_FILE = "cameras.xml"
CORNER_TO_CENTRE = -0.5
FRAME_SENSOR, FISHEYE_SENSOR = "frame", "fisheye"
COEFFICIENTS = ("f", "cx", "cy", "b1", "b2", "k1", "k2", "k3", "k4", "p1", "p2", "p3", "p4")


def read_metashape(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / METASHAPE_FILE
    chunks = read_xml(source, "Metashape", "export the cameras again").findall("chunk")
    if len(chunks) != 1:
        raise SceneError(f"{source}: has {len(chunks)} chunks and must have one; export the cameras of one chunk")
    chunk = chunks[0]
    lenses = {sensor.get("id"): sensor for sensor in chunk.iterfind("sensors/sensor")}
    cameras = {camera.get("id"): camera for camera in chunk.iterfind("cameras//camera")}
    # For each component, and for cameras of none: its frame, None for the world, and the transform to that.
    own = _similarity(source, chunk)
    whole = np.eye(4) if own is None else own
    parts = {part.get("id"): _similarity(source, part) for part in chunk.iterfind("components/component")}
    worlds: dict[str | None, tuple[str | None, np.ndarray]] = {None: (None, whole)}
    for key, change in parts.items():
        worlds[key] = (key if change is None and len(parts) > 1 else None, whole if change is None else change)
    without: list[str] = []
    photographs: dict[str, Path | None] = {}
    place = photographs_folder(folder) or folder
    framed: dict[str | None, list[PosedImage]] = {}
    for camera in cameras.values():
        label = camera.get("label", "")
        where = f"{source}: camera {one_line(label)}"
        if camera.get("enabled", "true").lower() in ("false", "0"):
            continue
        master = cameras.get(camera.get("master_id"), camera)
        if master is not camera and master.get("master_id", master.get("id")) != master.get("id"):
            raise SceneError(f"{where}: its master has a master itself; export the cameras again")
        if master.find("transform") is None:
            without.append(label)
            continue
        sensor = lenses.get(camera.get("sensor_id"))
        if sensor is None:
            raise SceneError(f"{where}: its sensor_id names no sensor of the file; export the cameras again")
        pose = numbers(where, "transform", master.findtext("transform"), 16).reshape(4, 4)
        pose = pose if master is camera else pose @ _offset(where, sensor)
        frame, world = worlds.get(master.get("component_id"), worlds[None])
        photographs[label] = image = spelled_file(place, label) or spelled_below(place, label)  # it may lack the suffix
        if image is None:
            continue
        posed = _posed_image(where, image, sensor, rigid_pose(where, "transform", world @ pose))
        framed.setdefault(frame, []).append(posed)
    missing = require_most(source, list(photographs), list(photographs.values()))
    if not framed:
        raise SceneError(f"{source}: no camera has a transform; align the photographs and export the cameras again")
    images = max(framed.values(), key=len)
    paths = Counter(posed.path for posed in images)
    if twice := [path.name for path, count in paths.items() if count > 1]:
        raise SceneError(
            f"{source}: several cameras have the label {listed(twice)}, so that their photographs are not known; give "
            "the photographs different names"
        )
    notes = (*missing, *([f"{METASHAPE_FILE}: not aligned, and left out: {listed(without)}"] if without else []))
    if shutters := sum(camera.find("rolling_shutter") is not None for camera in cameras.values()):
        notes += (
            f"{METASHAPE_FILE}: the rolling shutter of {shutters} cameras is not applied, so that they are inexact",
        )
    others = [posed.path.name for part in framed.values() if part is not images for posed in part]
    if others:
        words = (
            f"{METASHAPE_FILE}: its components have no common frame; the largest, of {len(images)} photographs, is used"
        )
        notes += (f"{words}, left out: {listed(others)}",)
    masked = with_masks(place, masks_folder(folder), images)
    return ParsedScene(name=folder.resolve().name, source=source, images=masked, notes=notes)


def _offset(where: str, sensor: ElementTree.Element) -> np.ndarray:
    """The pose [4, 4] of a slave's sensor in the frame of its master, the identity where it is not given."""
    pose = np.eye(4)
    if sensor.find("rotation") is not None:
        pose[:3, :3] = numbers(where, "rotation", sensor.findtext("rotation"), 9).reshape(3, 3)
    name = next((name for name in ("translation", "location") if sensor.find(name) is not None), None)
    if name is not None:
        pose[:3, 3] = numbers(where, name, sensor.findtext(name), 3)
    return pose


def _posed_image(where: str, image: Path, sensor: ElementTree.Element, c2w: np.ndarray) -> PosedImage:
    kind = sensor.get("type", FRAME_SENSOR)
    if kind not in (FRAME_SENSOR, FISHEYE_SENSOR):
        raise SceneError(
            f"{where}: its sensor type {one_line(kind)} is not supported; it may be {FRAME_SENSOR} or {FISHEYE_SENSOR}"
        )
    calibrations = {entry.get("class", "adjusted"): entry for entry in sensor.iterfind("calibration")}
    calibration = calibrations.get("adjusted", calibrations.get("initial"))
    if calibration is None:
        raise SceneError(f"{where}: its sensor has no calibration; align the photographs and export the cameras again")
    resolution = calibration.find("resolution")
    if resolution is None:
        resolution = sensor.find("resolution")
    if resolution is None:
        raise SceneError(f"{where}: its sensor has no resolution; export the cameras again")
    width, height = (side(where, key, scalar(where, resolution.attrib, key)) for key in ("width", "height"))
    actual = image_size(image)
    require_same_shape(where, (width, height), actual)
    values = {name: numbers(where, name, calibration.findtext(name, "0"), 1)[0] for name in COEFFICIENTS}
    if calibration.find("f") is None and calibration.find("fx") is not None:  # PhotoScan 1.2
        fx, fy, skew = (numbers(where, name, calibration.findtext(name, "0"), 1)[0] for name in ("fx", "fy", "skew"))
        values |= {"f": fy, "b1": fx - fy, "b2": skew, "cx": values["cx"] - width / 2, "cy": values["cy"] - height / 2}
    f, cx, cy, b1, b2, k1, k2, k3, k4, p1, p2, p3, p4 = values.values()
    positive(where, "f", f)
    positive(where, "f + b1", f + b1)
    is_fisheye = kind == FISHEYE_SENSOR
    unread = {"b2": b2, "p3": p3, "p4": p4, **({"p1": p1, "p2": p2} if is_fisheye else {"k4": k4})}
    odd = [name for name, value in unread.items() if value]
    if odd:
        raise SceneError(
            f"{where}: {' and '.join(odd)} of its {kind} calibration is not supported; align again with "
            f"{' and '.join(odd)} fixed at 0 (Optimize Cameras), or export undistorted photographs"
        )
    middle = width / 2 + cx + CORNER_TO_CENTRE, height / 2 + cy + CORNER_TO_CENTRE
    intrinsics = np.array([[f + b1, 0.0, middle[0]], [0.0, f, middle[1]], [0.0, 0.0, 1.0]])
    plain = (k1, k2, p2, p1, k3)
    distortion = (k1, k2, k3, k4) if is_fisheye else plain if any(plain) else ()
    return PosedImage(image, Lens(intrinsics, distortion, is_fisheye, (width, height)), c2w, size=actual)


def _similarity(source: Path, part: ElementTree.Element) -> np.ndarray | None:
    """The transform [4, 4] of a chunk or component to the world; None if it has none."""
    transform = part.find("transform")
    if transform is None or transform.find("rotation") is None:
        return None
    where = f"{source}: {part.tag} {one_line(part.get('label', ''))}"
    matrix = np.eye(4)
    scale = numbers(where, "scale", transform.findtext("scale"), 1)[0] if transform.find("scale") is not None else 1.0
    rotation = numbers(where, "rotation", transform.findtext("rotation"), 9).reshape(3, 3)
    matrix[:3, :3] = positive(where, "scale", scale) * rotation
    if transform.find("translation") is not None:
        matrix[:3, 3] = numbers(where, "translation", transform.findtext("translation"), 3)
    return matrix
