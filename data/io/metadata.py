"""What photographs say of themselves: EXIF, XMP and colour profiles."""

from __future__ import annotations

import io
import math
import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from PIL import Image

from data.errors import DamagedError, read_by_library
from data.io.files import open_input
from data.io.headers import JPEG_FRAMES, JPEG_SIGNATURE, TIFF_SIGNATURES, Tags, byte_order, directory, segments

JPEG_APP1, JPEG_APP2 = 0xE1, 0xE2
EXIF_MARK, XMP_MARK, ICC_MARK = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0", b"ICC_PROFILE\0"
# Tags of EXIF 2.32 (CIPA DC-008), sections 4.6.4 and 4.6.5.
ORIENTATION = 0x0112
EXIF_BLOCK, GPS_BLOCK, XMP_BLOCK, ICC_BLOCK = 0x8769, 0x8825, 0x02BC, 0x8773
FOCAL_LENGTH_35MM = 0xA405
COLOR_SPACE, INTEROPERABILITY_BLOCK, INTEROPERABILITY = 0xA001, 0xA005, 1
SRGB, OPTIONAL_SPACE = 1, b"R03"  # the values for sRGB, and for the other space of DCF 2.0, Adobe RGB
PHOTOMETRIC, SEPARATED = 262, 5  # of TIFF, and the value for CMYK
# In place of a profile: without one, the file or EXIF says so.
CMYK, ADOBE_RGB, UNCALIBRATED = b"CMYK", b"Adobe RGB", b"uncalibrated"
XMP_NAMES = ("xmp", "XML:com.adobe.xmp")  # of WebP, of PNG, in Pillow
# Of GPS positions: degrees, minutes and seconds, and metres.
LATITUDE_SIDE, LATITUDE, LONGITUDE_SIDE, LONGITUDE, BELOW_SEA, ALTITUDE = range(1, 7)
WHOLE_SIZE = (0xA002, 0xA003)  # width and height
FILM_DIAGONAL = math.hypot(36.0, 24.0)  # millimetres; the equivalent focal length refers to the diagonal of this film
# Millimetres, 35 mm equivalent. Values outside this range are wrong entries.
SHORTEST_FOCAL, LONGEST_FOCAL = 5.0, 2000.0
USED_TAGS = (PHOTOMETRIC, *range(1, 7), ORIENTATION, EXIF_BLOCK, GPS_BLOCK, XMP_BLOCK, ICC_BLOCK, FOCAL_LENGTH_35MM)
USED_TAGS += (*WHOLE_SIZE, COLOR_SPACE, INTEROPERABILITY_BLOCK)


class Metadata(NamedTuple):
    """What a photograph says of itself: EXIF, as values by tag, XMP, colour profile; empty without it, or damaged.

    profile: ICC, or CMYK, ADOBE_RGB or UNCALIBRATED.
    """

    main: Tags = {}
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
    head = file.read(4)
    if head in TIFF_SIGNATURES:
        return _with_tags(file, 0, b"")
    file.seek(0)
    if head.startswith(JPEG_SIGNATURE):
        parts = list(segments(file))
        blocks = [content for marker, content in parts if marker in (JPEG_APP1, JPEG_APP2)]
        found = [b"".join(block for block in blocks if block.startswith(mark)) for mark in (EXIF_MARK, XMP_MARK)]
        numbered = sorted(block[len(ICC_MARK) :] for block in blocks if block.startswith(ICC_MARK))
        profile = b"".join(part[2:] for part in numbered)  # after the number of the part, and of all
        is_cmyk = any(marker in JPEG_FRAMES and content[5:6] == b"\4" for marker, content in parts)
        profile = profile or (CMYK if is_cmyk else b"")
    else:
        with Image.open(file, formats=("PNG", "WEBP", "HEIF")) as image:
            texts = [image.info.get(name, b"") for name in ("exif", *XMP_NAMES)]
            profile = image.info.get("icc_profile") or b""
        exif, *xmp = (text.encode() if isinstance(text, str) else text for text in texts)
        found = [exif, b"".join(xmp)]
    start = len(EXIF_MARK) if found[0].startswith(EXIF_MARK) else 0
    whole = _with_tags(io.BytesIO(found[0]), start, found[1]) if found[0] else Metadata(xmp=found[1])
    return whole._replace(profile=profile or whole.profile)


def _with_tags(file: BinaryIO, start: int, xmp: bytes) -> Metadata:
    """The tags of a TIFF file or an EXIF block that begins at `start`; `xmp`: what is known beside them."""
    file.seek(start)
    order = byte_order(file.read(4))
    (first,) = struct.unpack(f"{order}L", file.read(4))
    main, _ = directory(file, start, order, first, USED_TAGS)
    exif, gps = (
        directory(file, start, order, int(main[tag][0]), USED_TAGS)[0] if tag in main else {}
        for tag in (EXIF_BLOCK, GPS_BLOCK)
    )
    xmp, profile = (given or bytes(map(int, main.get(tag, b""))) for given, tag in ((xmp, XMP_BLOCK), (b"", ICC_BLOCK)))
    if not profile and main.get(PHOTOMETRIC) == (SEPARATED,):
        profile = CMYK
    elif not profile and exif.get(COLOR_SPACE, (SRGB,)) != (SRGB,):
        at = exif.get(INTEROPERABILITY_BLOCK)
        space = directory(file, start, order, int(at[0]), USED_TAGS)[0].get(INTEROPERABILITY) if at else None
        profile = ADOBE_RGB if space and space[:3] == OPTIONAL_SPACE else UNCALIBRATED
    return Metadata(main, exif, gps, xmp, profile)


def read_exif(path: Path) -> tuple[int, float | None]:
    """Orientation 1..8 (1: as stored) and the 35 mm equivalent focal length in millimetres, None if unknown.

    A file with missing or damaged EXIF data gives (1, None).
    """
    found = read_metadata(path)
    orientation, focal = found.main.get(ORIENTATION, (1,))[0], float(found.exif.get(FOCAL_LENGTH_35MM, (0,))[0])
    in_range = SHORTEST_FOCAL <= focal <= LONGEST_FOCAL
    return int(orientation) if orientation in range(1, 9) else 1, focal if in_range else None


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
