"""The format of RealityCapture (RealityScan): an XMP file beside each photograph, as Export > Metadata (XMP) writes it.

    folder/images/a.jpg, a.xmp, ...   or in the folder itself; photographs without an XMP file are left out

"RealityCapture XMP Camera Math" (support pages of its maker): Rotation (row by row) maps the world to the camera
frame (x right, y down, z forward), Position is the camera centre. With x = X / Z, y = Y / Z, r^2 = x^2 + y^2,
R = 1 + k1 r^2 + k2 r^4 + k3 r^6, f = FocalLength35mm / 36 and s, the longer side of the image:

    u = w / 2 + s (f x R + PrincipalPointU)        v = h / 2 + s (f y R + PrincipalPointV)

u and v count from the corner of the image. This is the distortion model brown3, the default.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from data.errors import SceneError, listed, one_line
from data.io.images import image_size, list_images
from data.io.json_file import positive
from data.io.xml_file import read_xml
from data.parsed_scene import CameraFiles, Lens, ParsedScene, PosedImage
from data.readers.poses import rigid_pose

SUFFIX = ".xmp"
NAMESPACE = "http://www.capturingreality.com/ns/xcr/1.1#"
FILM_WIDTH = 36.0  # millimetres, of FocalLength35mm
CORNER_TO_CENTRE = -0.5
MODELS = ("perspective", "brown3", "brown4")  # brown4: as brown3 if k4 is 0
HEAD_BYTES = 4096  # of an XMP file, which contain the name space


def matches(folder: Path) -> str:
    """The first XMP file, if RealityCapture wrote it; "" otherwise."""
    first = min(_places(folder)[-1].glob(f"*{SUFFIX}"), default=None)
    if first is None or not first.is_file():
        return ""
    with first.open("rb") as file:
        is_ours = NAMESPACE.encode() in file.read(HEAD_BYTES)
    return first.relative_to(folder).as_posix() if is_ours else ""


def read_realitycapture(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    place = _places(folder)[-1]
    pictures = list_images(place)
    found = [path for path in pictures if path.with_suffix(SUFFIX).is_file()]
    if not found:
        raise SceneError(f"{place}: no photograph has an {SUFFIX} file beside it; export Metadata (XMP) there")
    notes = ()
    if others := [path.name for path in pictures if path not in found]:
        notes = (f"{place}: without an {SUFFIX} file, and left out: {listed(others)}",)
    images = tuple(_posed_image(path) for path in found)
    return ParsedScene(name=folder.resolve().name, source=place, images=images, notes=notes)


def _places(folder: Path) -> list[Path]:
    """The folders that may hold the photographs; the last one does."""
    return [place for place in (folder, folder / "images") if place.is_dir()]


def _posed_image(path: Path) -> PosedImage:
    source = path.with_suffix(SUFFIX)
    values = _values(source)
    where, size = str(source), image_size(path)
    model = values.get("DistortionModel", "perspective")
    k1, k2, k3, k4, t1, t2 = _numbers(where, values, "DistortionCoeficients", 6, "0 0 0 0 0 0")
    if any((k1, k2, k3, k4, t1, t2)) and model not in MODELS or any((k4, t1, t2)):
        raise SceneError(
            f"{where}: the distortion model {one_line(model)} with k4, t1, t2 = {k4:g}, {t1:g}, {t2:g} is not "
            "supported; set the distortion model to Brown3 in the alignment settings and align again, or export "
            "undistorted photographs"
        )
    (skew,), (aspect,) = (
        _numbers(where, values, name, 1, default) for name, default in (("Skew", "0"), ("AspectRatio", "1"))
    )
    if skew != 0.0 or aspect != 1.0:
        raise SceneError(
            f"{where}: Skew {skew:g} and AspectRatio {aspect:g} must be 0 and 1; export undistorted photographs"
        )
    longer = max(size)
    focal = longer * positive(where, "FocalLength35mm", _numbers(where, values, "FocalLength35mm", 1)[0]) / FILM_WIDTH
    middle = [
        side / 2 + longer * _numbers(where, values, name, 1, "0")[0] + CORNER_TO_CENTRE
        for side, name in zip(size, ("PrincipalPointU", "PrincipalPointV"), strict=True)
    ]
    intrinsics = np.array([[focal, 0.0, middle[0]], [0.0, focal, middle[1]], [0.0, 0.0, 1.0]])
    pose = np.eye(4)
    pose[:3, :3] = np.reshape(_numbers(where, values, "Rotation", 9), (3, 3)).T
    pose[:3, 3] = _numbers(where, values, "Position", 3)
    distortion = (k1, k2, 0.0, 0.0, k3) if any((k1, k2, k3)) else ()
    return PosedImage(path, Lens(intrinsics, distortion, size=size), rigid_pose(where, "Rotation", pose), size=size)


def _values(source: Path) -> dict[str, str]:
    """The attributes and elements of RealityCapture in an XMP file, by name; raises SceneError for other files."""
    root = read_xml(source, "RealityCapture", "export it again")
    mark, found = f"{{{NAMESPACE}}}", {}
    for element in root.iter():
        found |= {name.removeprefix(mark): value for name, value in element.attrib.items() if name.startswith(mark)}
        if element.tag.startswith(mark):
            found[element.tag.removeprefix(mark)] = element.text or ""
    return found


def _numbers(where: str, values: dict[str, str], name: str, count: int, default: str = "") -> list[float]:
    """`count` finite numbers; raises SceneError for anything else."""
    words = values.get(name, default).split()
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if len(numbers) != count or not all(map(math.isfinite, numbers)):
        raise SceneError(
            f"{where}: {name} is {one_line(repr(' '.join(words)))} and must be {count} finite numbers; align the "
            "photographs and export the file again"
        )
    return numbers
