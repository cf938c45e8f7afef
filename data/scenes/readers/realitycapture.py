"""The format of RealityCapture (RealityScan): XMP files, or one CSV file.

    folder/images/a.jpg, a.xmp, ...   Export > Metadata (XMP); photographs without an XMP file are left out
    folder/NAME.csv                   Export > Registration > Internal/External camera parameters; also in images/

The photographs are in images/ or in the folder itself. Where both are there, the XMP files are read: they name the
distortion model.

"RealityCapture XMP Camera Math" (support pages of its maker): Rotation (row by row) maps the world to the camera
frame (x right, y down, z forward), Position is the camera centre. With x = X / Z, y = Y / Z, r^2 = x^2 + y^2,
R = 1 + k1 r^2 + k2 r^4 + k3 r^6, f = FocalLength35mm / 36 and s, the longer side of the image:

    u = w / 2 + s (f x R + PrincipalPointU)        v = h / 2 + s (f y R + PrincipalPointV)

u and v count from the corner of the image. This is the distortion model brown3, the default. The CSV file has the same
numbers as x y alt, f (in millimetres of 36 mm), px, py and k1 k2 k3. Its angles are in degrees; at 0 the camera looks
down (-z) with +y at the top of the image: a camera frame with x right, y up, z backward is turned about y by roll, then
about x by pitch, then about z by -heading, clockwise as on a compass.
"""

from __future__ import annotations

import contextlib
import csv
from functools import partial
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from data.cameras import affine
from data.errors import SceneError, listed, one_line
from data.io.files import read_regular
from data.io.images import image_size, list_images
from data.io.named_files import masks_folder
from data.io.untrusted import OPENGL_TO_OPENCV, positive, read_content, read_xml, rigid_pose
from data.parsed_scene import CameraFiles, Lens, ParsedScene, PosedImage
from data.scenes.readers.shots import numbers, scalar, with_masks
from data.scenes.readers.transforms import Frame, find_file, require_distinct

XMP_SUFFIX, TABLE_SUFFIX = ".xmp", ".csv"
NAMESPACE = "http://www.capturingreality.com/ns/xcr/1.1#"
FILM_WIDTH = 36.0  # millimetres, of FocalLength35mm
CORNER_TO_CENTRE = -0.5
BROWN3 = "brown3"
DISTORTION_MODELS = ("perspective", BROWN3, "brown4")  # brown4: as brown3 if k4 is 0
SIDECAR_HEAD_BYTES = 4096  # of an XMP or CSV file, which contain the name space or the names of the columns
POSE_COLUMNS = ("name", "x", "y", "alt", "heading", "pitch", "roll", "f")
COUNT_LINE = "#cameras "  # begins an optional first line, the number of cameras
LENS_COLUMNS = ("k1", "k2", "k3", "k4", "t1", "t2")  # 0 where the template of the export leaves them out


def matches(folder: Path) -> str:
    """The first XMP file if RealityCapture wrote it, else its CSV file; "" otherwise."""
    place = _places(folder)[-1]
    first = min((path for path in place.iterdir() if path.suffix.lower() == XMP_SUFFIX), default=None)
    if first is not None and first.is_file() and NAMESPACE.encode() in read_regular(first, SIDECAR_HEAD_BYTES):
        return first.relative_to(folder).as_posix()
    return next((path.relative_to(folder).as_posix() for path in _tables(folder)), "")


def read_realitycapture(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    place, tables = _places(folder)[-1], _tables(folder)
    photographs = list_images(place)
    with_sidecar = [path for path in photographs if _sidecar(path).is_file()]
    if len(tables) > 1 and not with_sidecar:
        raise SceneError(f"{folder}: holds {listed([path.name for path in tables])}; keep one file of cameras")
    if tables and not with_sidecar:
        return _read_table(folder, place, tables[0])
    if not with_sidecar:
        raise SceneError(
            f"{place}: no photograph has an {XMP_SUFFIX} file beside it, and no {TABLE_SUFFIX} file holds cameras; "
            "export Metadata (XMP) there, or Registration > Internal/External camera parameters"
        )
    notes = [f"{path}: not read, as photographs have an {XMP_SUFFIX} file" for path in tables]
    if others := [path.name for path in photographs if path not in with_sidecar]:
        notes.append(f"{place}: without an {XMP_SUFFIX} file, and left out: {listed(others)}")
    images = with_masks(place, masks_folder(folder), [_posed_image(path) for path in with_sidecar])
    return ParsedScene(name=folder.resolve().name, source=place, images=images, notes=tuple(notes))


def _sidecar(photograph: Path) -> Path:
    """The XMP file beside a photograph, whose suffix may have capitals."""
    capital = photograph.with_suffix(XMP_SUFFIX.upper())
    return capital if capital.is_file() else photograph.with_suffix(XMP_SUFFIX)


def _places(folder: Path) -> list[Path]:
    """The folders that may hold the photographs; the last one does."""
    return [place for place in (folder, folder / "images") if place.is_dir()]


def _tables(folder: Path) -> list[Path]:
    """The CSV files of cameras that can be read."""
    tables = []
    for path in (path for place in _places(folder) for path in sorted(place.glob(f"*{TABLE_SUFFIX}"))):
        with contextlib.suppress(OSError):
            lines = read_regular(path, SIDECAR_HEAD_BYTES).decode("utf-8-sig", "replace").splitlines()
            tables += [path] if _header(lines)[0] else []  # other programs write CSV files, too
    return tables


def _header(lines: list[str]) -> tuple[list[str], int]:
    """The names of the columns and the number of lines up to them; no names if this is not a file of cameras."""
    before = 1 if lines and lines[0].startswith(COUNT_LINE) else 0
    names = [name.strip().lower() for name in "".join(lines[before : before + 1]).lstrip("# ").split(",")]
    return (names if set(POSE_COLUMNS) <= set(names) else []), before + 1


def _read_table(folder: Path, place: Path, source: Path) -> ParsedScene:
    """The scene of a CSV file; rows without a photograph, and photographs without a row, are left out."""
    try:
        lines = read_content(source).decode("utf-8-sig").splitlines()
        columns, before = _header(lines)
        table = csv.reader(lines[before:], strict=True)
        rows = [(before + table.line_num, row) for row in table if any(word.strip() for word in row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise SceneError(f"{source}: cannot be read as CSV ({one_line(str(error))}); export it again") from error
    if not rows:
        raise SceneError(f"{source}: has no cameras; align the photographs and export it again")
    images, missing = [], []
    for line, row in rows:
        where = f"{source}: line {line}"
        if len(row) != len(columns):
            raise SceneError(f"{where} has {len(row)} values and must have {len(columns)}; export it again")
        values = dict(zip(columns, row, strict=True))
        name = values["name"].strip()
        path = find_file(Frame(where, place, name, {}, {}), "name", name)
        if path is None:
            missing.append(one_line(name))
            continue
        read = partial(scalar, where, values)
        heading, pitch, roll, focal, *centre = map(read, ("heading", "pitch", "roll", "f", "x", "y", "alt"))
        principal, distortion = ([read(name, "0") for name in names] for names in (("px", "py"), LENS_COLUMNS))
        size = image_size(path)
        lens = _lens(where, size, positive(where, "f", focal), principal, distortion, BROWN3)
        pose = affine(Rotation.from_euler("ZXY", [-heading, pitch, roll], degrees=True).as_matrix(), centre)
        images.append(PosedImage(path, lens, rigid_pose(where, "x y alt", pose) @ OPENGL_TO_OPENCV, size=size))
    if not images:
        raise SceneError(f"{source}: none of its photographs ({listed(missing)}) is in {place}; put them there")
    require_distinct(source, images)
    known = {image.path for image in images}
    notes = [f"{source}: without a photograph, and left out: {listed(missing)}"] if missing else []
    if others := [path.name for path in list_images(place) if path not in known]:
        notes.append(f"{source}: does not name, and left out: {listed(others)}")
    masked = with_masks(place, masks_folder(folder), images)
    return ParsedScene(name=folder.resolve().name, source=source, images=masked, notes=tuple(notes))


def _posed_image(path: Path) -> PosedImage:
    source = _sidecar(path)
    where, size, mark, values = str(source), image_size(path), f"{{{NAMESPACE}}}", dict[str, str]()
    for element in read_xml(source, "RealityCapture", "export it again").iter():  # attributes or elements, by name
        values |= {name.removeprefix(mark): value for name, value in element.attrib.items() if name.startswith(mark)}
        if element.tag.startswith(mark):
            values[element.tag.removeprefix(mark)] = element.text or ""
    distortion = numbers(where, "DistortionCoeficients", values.get("DistortionCoeficients", "0 0 0 0 0 0"), 6)
    skew, aspect = scalar(where, values, "Skew", "0"), scalar(where, values, "AspectRatio", "1")
    if skew != 0.0 or aspect != 1.0:
        raise SceneError(
            f"{where}: Skew {skew:g} and AspectRatio {aspect:g} must be 0 and 1; export undistorted photographs"
        )
    focal = positive(where, "FocalLength35mm", scalar(where, values, "FocalLength35mm"))
    principal = [scalar(where, values, name, "0") for name in ("PrincipalPointU", "PrincipalPointV")]
    lens = _lens(where, size, focal, principal, list(distortion), values.get("DistortionModel", "perspective"))
    turn = np.reshape(numbers(where, "Rotation", values.get("Rotation"), 9), (3, 3)).T
    pose = affine(turn, numbers(where, "Position", values.get("Position"), 3))
    return PosedImage(path, lens, rigid_pose(where, "Rotation", pose), size=size)


def _lens(
    where: str, size: tuple[int, int], focal: float, principal: list[float], distortion: list[float], model: str
) -> Lens:
    """The lens of an image of `size`, from the numbers of the module's docstring; raises SceneError for others."""
    k1, k2, k3, k4, t1, t2 = distortion
    if any(distortion) and model not in DISTORTION_MODELS or any((k4, t1, t2)):
        raise SceneError(
            f"{where}: the distortion model {one_line(model)} with k4, t1, t2 = {k4:g}, {t1:g}, {t2:g} is not "
            "supported; set the distortion model to Brown3 in the alignment settings and align again, or export "
            "undistorted photographs"
        )
    longer = max(size)
    pixels = longer * focal / FILM_WIDTH
    cx, cy = (side / 2 + longer * at + CORNER_TO_CENTRE for side, at in zip(size, principal, strict=True))
    intrinsics = np.array([[pixels, 0.0, cx], [0.0, pixels, cy], [0.0, 0.0, 1.0]])
    return Lens(intrinsics, (k1, k2, 0.0, 0.0, k3) if any((k1, k2, k3)) else (), size=size)
