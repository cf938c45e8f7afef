"""The headers of image files: format and size, without decoding; pages of TIFF files."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from data.errors import DAMAGE, UserError

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_CHUNK_FRAME = 12  # length, kind and checksum of a chunk
JPEG_SIGNATURE = b"\xff\xd8\xff"
WEBP_ANIMATION = 0x02  # flag of the chunk VP8X (RFC 9649, section 2.7)
TIFF_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}  # signatures, and the order of bytes
TIFF_SUFFIXES = (".tif", ".tiff")  # raw photographs have these signatures too, and a small picture first
BIG_TIFFS = (b"II+\0", b"MM\0+")
TIFF_SHORT = 3  # the type of 16 bits
MOST_PAGES = 1000
ASSOCIATED, UNASSOCIATED = 1, 2  # kinds of an alpha channel: the colours are multiplied by it, or not
DAMAGED = "cannot be decoded: the file is truncated or damaged; save it again"
# JPEG markers that announce the frame's size: SOF0-SOF15 without DHT (C4), JPG (C8) and DAC (CC); ITU-T T.81, table B.1
JPEG_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Tags of EXIF 2.32 (CIPA DC-008), sections 4.6.4 and 4.6.5.
ORIENTATION = 0x0112
EXIF_BLOCK = 0x8769
FOCAL_LENGTH_35MM = 0xA405
FILM_DIAGONAL = math.hypot(36.0, 24.0)  # millimetres; the equivalent focal length refers to the diagonal of this film

# Millimetres, 35 mm equivalent. Values outside this range are wrong entries.
SHORTEST_FOCAL, LONGEST_FOCAL = 5.0, 2000.0


class ImageError(UserError):
    """An image file that cannot be read or written, or is inconsistent with the others."""


class TiffPage(NamedTuple):
    """What a directory of a TIFF file says (TIFF 6.0, section 8), the first value of each tag."""

    number: int  # of the page in the file, from 0
    width: int
    height: int
    bits: int = 1  # per sample
    photometric: int = 2  # 0 and 1: grey
    samples: int = 1  # per pixel
    planes: int = 1  # 2: one after the other
    alpha: int = 0  # ASSOCIATED, UNASSOCIATED, 0 unknown
    form: int = 1  # of samples: unsigned integers


TIFF_TAGS = {256: "width", 257: "height", 258: "bits", 262: "photometric", 277: "samples", 284: "planes"}
TIFF_TAGS |= {338: "alpha", 339: "form"}


def header_size(head: bytes, path: Path | str) -> tuple[int, int] | None:
    """(width, height) in the header `head`; None if it ends too early."""
    try:
        if head.startswith(PNG_SIGNATURE):
            return struct.unpack_from(">II", head, 16)
        if head.startswith(JPEG_SIGNATURE):
            return _jpeg_size(head)
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return _webp_size(head, path)
        if head[:4] in TIFF_ORDERS and Path(path).suffix.lower() in TIFF_SUFFIXES:
            page = tiff_page(head)
            return page and _readable(page, path)
    except (struct.error, IndexError):
        return None
    if head[:4] in BIG_TIFFS:
        raise ImageError(f"{path}: is a BigTIFF, which is not read; save it as TIFF or PNG")
    if head[:4] in TIFF_ORDERS:
        raise ImageError(f"{path}: is a raw photograph (DNG, NEF, CR2, ...); develop it and save it as TIFF or JPEG")
    if not head:
        raise ImageError(f"{path}: is empty; copy it again")
    raise ImageError(f"{path}: its content is neither PNG, JPEG, WebP nor TIFF; save it as one of them")


def require_whole_png(encoded: bytes, path: Path | str) -> None:
    """Raises ImageError for a PNG with a chunk that extends beyond the end of the file, and for an animation.

    OpenCV allocates the size that a chunk claims, up to 4 GB, before it reads the chunk.
    """
    if not encoded.startswith(PNG_SIGNATURE):
        return
    position, kinds = len(PNG_SIGNATURE), list[bytes]()
    while position + PNG_CHUNK_FRAME <= len(encoded) and kinds[-1:] != [b"IEND"]:
        length, kind = struct.unpack_from(">I4s", encoded, position)
        position += length + PNG_CHUNK_FRAME
        kinds.append(kind)
    is_whole = position <= len(encoded) and kinds[-1:] == [b"IEND"]
    if not is_whole or kinds[0] != b"IHDR" or kinds.count(b"IHDR") > 1:
        raise ImageError(f"{path}: {DAMAGED}")
    if b"acTL" in kinds:
        raise ImageError(f"{path}: is an animation; save one frame of it as a plain PNG")


def _jpeg_size(encoded: bytes) -> tuple[int, int]:
    """(width, height) from the first frame header; raises IndexError or struct.error if the file ends before it."""
    position = 2
    while True:
        while encoded[position] != 0xFF or encoded[position + 1] in (0x00, 0xFF):
            position += 1
        marker = encoded[position + 1]
        if marker in JPEG_FRAME_MARKERS:
            height, width = struct.unpack_from(">HH", encoded, position + 5)
            return width, height
        standalone = marker == 0x01 or 0xD0 <= marker <= 0xD8
        position += 2 if standalone else 2 + struct.unpack_from(">H", encoded, position + 2)[0]


def _webp_size(encoded: bytes, path: Path | str) -> tuple[int, int]:
    """(width, height) from the first chunk (RFC 9649, sections 2.5 to 2.7); raises ImageError for an animation, and
    struct.error or IndexError if the file ends before it.
    """
    kind, body = encoded[12:16], 20
    if kind == b"VP8X":
        if encoded[body] & WEBP_ANIMATION:
            raise ImageError(f"{path}: is an animation; save one frame of it as a PNG")
        width, height = (1 + int.from_bytes(encoded[at : at + 3], "little") for at in (body + 4, body + 7))
        return width, height
    if kind == b"VP8L":  # after a signature, 14 bits each of the width and of the height, less 1
        bits = struct.unpack_from("<I", encoded, body + 1)[0]
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":  # after the frame tag and the start code, 14 bits each, below two bits of scale
        width, height = struct.unpack_from("<HH", encoded, body + 6)
        return width & 0x3FFF, height & 0x3FFF
    raise ImageError(f"{path}: {DAMAGED}")


def tiff_page(encoded: bytes) -> TiffPage | None:
    """The largest page of a TIFF file, the first of equals: others are thumbnails, reduced copies and masks.

    None if a page has no size; raises struct.error if a directory is not in `encoded`: it is often at the end.
    """
    order, pages = TIFF_ORDERS[encoded[:4]], list[TiffPage]()
    (at,) = struct.unpack_from(f"{order}I", encoded, 4)
    while at and len(pages) < MOST_PAGES:
        (count,), found = struct.unpack_from(f"{order}H", encoded, at), {}
        for entry in range(at + 2, at + 2 + 12 * count, 12):
            tag, kind, values = struct.unpack_from(f"{order}HHI", encoded, entry)
            if tag in TIFF_TAGS:
                form = "H" if kind == TIFF_SHORT else "I"
                apart = values * struct.calcsize(f"{order}{form}") > 4
                place = struct.unpack_from(f"{order}I", encoded, entry + 8)[0] if apart else entry + 8
                found[TIFF_TAGS[tag]] = struct.unpack_from(f"{order}{form}", encoded, place)[0]
        if not {"width", "height"} <= found.keys():
            return None
        pages.append(TiffPage(len(pages), **found))
        (at,) = struct.unpack_from(f"{order}I", encoded, at + 2 + 12 * count)
    return max(pages, key=lambda page: page.width * page.height, default=None)


def _readable(page: TiffPage, path: Path | str) -> tuple[int, int]:
    """(width, height); raises ImageError for samples that OpenCV reads as others, or not at all."""
    if page.bits > 16 or page.form != 1:
        kind = "unsigned integers" if page.form == 1 else "floats or signed integers"
        raise ImageError(f"{path}: has {kind} of {page.bits} bits; save it with 8 or 16 bits per channel")
    if page.planes == 2 and page.bits == 16 and page.samples > 1:
        raise ImageError(f"{path}: has its channels one after the other (planar); save it interleaved, or as PNG")
    if page.photometric < 2 and page.samples > 1:
        raise ImageError(f"{path}: is grey with an alpha channel; save it as RGBA or PNG")
    return page.width, page.height


def straight(pixels: np.ndarray, page: TiffPage) -> np.ndarray:
    """Pixels [H, W, C] of a TIFF page, RGB(A), not multiplied by an alpha channel, as they are in PNG.

    For 8 bits libtiff multiplies them if the file has not.
    """
    is_multiplied = page.alpha == ASSOCIATED or (page.alpha == UNASSOCIATED and pixels.dtype == np.uint8)
    if pixels.shape[2] < 4 or not is_multiplied:
        return pixels
    most, values = np.iinfo(pixels.dtype).max, pixels.astype(np.float64)
    rgb = np.minimum(np.rint(values[..., :3] * most / np.maximum(values[..., 3:], 1)), most).astype(pixels.dtype)
    return np.concatenate([rgb, pixels[..., 3:]], axis=2)


def read_exif(path: Path) -> tuple[int, float | None]:
    """Orientation 1..8 (1: as stored) and the 35 mm equivalent focal length in millimetres, None if unknown.

    A file with missing or damaged EXIF data gives (1, None).
    """
    try:
        with Image.open(path) as image:
            tags = image.getexif()
            orientation = tags.get(ORIENTATION, 1)
            focal = float(tags.get_ifd(EXIF_BLOCK).get(FOCAL_LENGTH_35MM, math.nan))
    except (*DAMAGE, OSError, Image.DecompressionBombError):
        return 1, None
    in_range = SHORTEST_FOCAL <= focal <= LONGEST_FOCAL
    return orientation if orientation in range(1, 9) else 1, focal if in_range else None


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


def upright_size(path: Path) -> tuple[int, int] | None:
    """(width, height) of the photograph as `upright` shows it; None if the file cannot be read so."""
    try:
        with Image.open(path) as image:
            width, height = image.size
    except (*DAMAGE, OSError, Image.DecompressionBombError):
        return None
    return (height, width) if read_exif(path)[0] >= 5 else (width, height)
