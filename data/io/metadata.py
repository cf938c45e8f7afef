"""What photographs say of themselves: EXIF, XMP and colour profiles."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from PIL import Image

from data.errors import DamagedError, read_by_library
from data.io.files import open_input
from data.io.headers import TIFF_SIGNATURES

# Tags of EXIF 2.32 (CIPA DC-008), sections 4.6.4 and 4.6.5.
ORIENTATION = 0x0112
EXIF_BLOCK, GPS_BLOCK, XMP_BLOCK, ICC_BLOCK = 0x8769, 0x8825, 0x02BC, 0x8773
FOCAL_LENGTH_35MM = 0xA405
COLOR_SPACE, INTEROPERABILITY_BLOCK, INTEROPERABILITY = 0xA001, 0xA005, 1
SRGB, OPTIONAL_SPACE = 1, "R03"  # the values for sRGB, and for the other space of DCF 2.0, Adobe RGB
PHOTOMETRIC, SEPARATED = 262, 5  # of TIFF, and the value for CMYK
# In place of a profile: without one, the file or EXIF says so.
CMYK, ADOBE_RGB, UNCALIBRATED = b"CMYK", b"Adobe RGB", b"uncalibrated"
XMP_NAMES = ("xmp", "XML:com.adobe.xmp")  # in Pillow; the latter of PNG
# Of GPS positions: degrees, minutes and seconds, and metres.
LATITUDE_SIDE, LATITUDE, LONGITUDE_SIDE, LONGITUDE, BELOW_SEA, ALTITUDE = range(1, 7)
WHOLE_SIZE = (0xA002, 0xA003)  # width and height
FILM_DIAGONAL = math.hypot(36.0, 24.0)  # millimetres; the equivalent focal length refers to the diagonal of this film
# Millimetres, 35 mm equivalent. Values outside this range are wrong entries.
SHORTEST_FOCAL_35MM, LONGEST_FOCAL_35MM = 5.0, 2000.0
USED_TAGS = (*range(1, 7), FOCAL_LENGTH_35MM, *WHOLE_SIZE)
Tags = dict[int, bytes | tuple[float, ...]]  # the values of each, bytes for bytes and texts


class Metadata(NamedTuple):
    """What a photograph says of itself: EXIF and GPS, as values by tag, XMP, colour profile; empty where damaged.

    profile: ICC, or CMYK, ADOBE_RGB or UNCALIBRATED.
    """

    orientation: int = 1  # 1 to 8; 1: as stored
    exif: Tags = {}
    gps: Tags = {}
    xmp: bytes = b""
    profile: bytes = b""


def read_metadata(source: Path | bytes) -> Metadata:
    """EXIF, XMP and colour profile of a PNG, JPEG, WebP or TIFF file, or of its content; raises nothing."""
    try:
        with read_by_library(), io.BytesIO(source) if isinstance(source, bytes) else open_input(source) as file:
            return _metadata(file)
    except DamagedError:
        return Metadata()


def _metadata(file: BinaryIO) -> Metadata:
    head, exif = file.read(4), Image.Exif()
    file.seek(0)
    if head in TIFF_SIGNATURES:
        exif.load_from_fp(file)
        xmp, profile = exif.get(XMP_BLOCK, b""), exif.get(ICC_BLOCK, b"")
        is_cmyk = exif.get(PHOTOMETRIC) == SEPARATED
    else:
        with Image.open(file, formats=("JPEG", "PNG", "WEBP", "HEIF")) as image:
            exif, profile, is_cmyk = image.getexif(), image.info.get("icc_profile") or b"", image.mode == "CMYK"
            xmp = next((image.info[name] for name in XMP_NAMES if name in image.info), b"")
    of_camera, gps = exif.get_ifd(EXIF_BLOCK), exif.get_ifd(GPS_BLOCK)
    if not profile and is_cmyk:
        profile = CMYK
    elif not profile and of_camera.get(COLOR_SPACE, SRGB) != SRGB:
        space = exif.get_ifd(INTEROPERABILITY_BLOCK).get(INTEROPERABILITY, "")
        profile = ADOBE_RGB if space[:3] == OPTIONAL_SPACE else UNCALIBRATED
    xmp = xmp.encode() if isinstance(xmp, str) else xmp
    orientation = exif.get(ORIENTATION, 1)
    return Metadata(orientation if orientation in range(1, 9) else 1, _tags(of_camera), _tags(gps), xmp, profile)


def _tags(block: Mapping[int, Any]) -> Tags:
    """The numbers and texts of a block of EXIF."""
    tags: Tags = {}
    for tag in {*USED_TAGS} & {*block}:
        value = block[tag]
        if isinstance(value, str | bytes):
            tags[tag] = value.encode() if isinstance(value, str) else value
        else:
            tags[tag] = tuple(map(float, value if isinstance(value, tuple) else (value,)))
    return tags


def read_exif(path: Path) -> tuple[int, float | None]:
    """Orientation 1..8 (1: as stored) and the 35 mm equivalent focal length in millimetres, None if unknown.

    A file with missing or damaged EXIF data gives (1, None).
    """
    metadata = read_metadata(path)
    focal = float(metadata.exif.get(FOCAL_LENGTH_35MM, (0,))[0])
    in_range = SHORTEST_FOCAL_35MM <= focal <= LONGEST_FOCAL_35MM
    return metadata.orientation, focal if in_range else None


def focal_pixels(focal_35mm: float, size: tuple[int, int]) -> float:
    """The focal length in pixels of an uncropped image of `size` (width, height)."""
    return focal_35mm / FILM_DIAGONAL * math.hypot(*size)


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """`pixels` [H, W, ...] rotated upright; `orientation` as in EXIF: the sides that row 0 and column 0 show."""
    if orientation >= 5:  # stored rotated by 90 degrees: row 0 is the left or the right side
        pixels = np.swapaxes(pixels, 0, 1)
    flips_rows = orientation in (3, 4, 7, 8)
    flips_columns = orientation in (2, 3, 6, 7)
    pixels = pixels[::-1] if flips_rows else pixels
    return np.ascontiguousarray(pixels[:, ::-1] if flips_columns else pixels)
