"""The headers of image files: format and size, without decoding; pages of TIFF files."""

from __future__ import annotations

import io
import math
import re
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import numpy as np
from PIL.WebPImagePlugin import WebPImageFile

from data.errors import DamagedError, UserError, read_by_library

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_CHUNK_FRAME = 12  # length, kind and checksum of a chunk
HEAD_BYTES = 24  # up to the size in a PNG
JPEG_SIGNATURE = b"\xff\xd8\xff"
WEBP_SIGNATURE = re.compile(b"RIFF....WEBP", re.DOTALL)
JPEG_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of segments with the size (ITU-T T.81, table B.1)
JPEG_SCAN, JPEG_ALONE = 0xDA, (0x01, *range(0xD0, 0xD9))
MOST_SEGMENTS = 4096  # of a JPEG before its pixels; colour profiles and thumbnails take some hundred
TIFF_SIGNATURES = (b"II*\0", b"MM\0*")  # signatures
TIFF_SUFFIXES = (".tif", ".tiff")  # raw photographs have these signatures too, and a small picture first
BIG_TIFFS = (b"II+\0", b"MM\0+")
MOST_PAGES = 1000
DIRECTORY_ENTRY = np.dtype([("tag", "u2"), ("kind", "u2"), ("count", "u4"), ("value", "V4")])
# Types of values in TIFF directories, of struct: bytes, texts, integers, ratios of two, and floats (section 2).
TIFF_TYPES = {1: "c", 2: "c", 3: "H", 4: "L", 5: "LL", 6: "b", 7: "c", 8: "h", 9: "l", 10: "ll", 11: "f", 12: "d"}
MOST_VALUES, MOST_TEXT = 8, 1 << 20  # values of a tag that are read, and of a text
ASSOCIATED, UNASSOCIATED = 1, 2  # kinds of an alpha channel: the colours are multiplied by it, or not
DAMAGED = "cannot be decoded: the file is truncated or damaged; save it again"


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
Tags = dict[int, bytes | tuple[float, ...]]  # the first values of each, bytes for bytes and texts


def header_size(file: BinaryIO, path: Path | str) -> tuple[int, int]:
    """(width, height) in the header of an image file; raises ImageError for a damaged one and for other formats."""
    head = file.read(HEAD_BYTES)
    if head[:4] in BIG_TIFFS:
        raise ImageError(f"{path}: is a BigTIFF, which is not read; save it as TIFF or PNG")
    if head[:4] in TIFF_SIGNATURES and Path(path).suffix.lower() not in TIFF_SUFFIXES:
        raise ImageError(f"{path}: is a raw photograph (DNG, NEF, CR2, ...); develop it and save it as TIFF or JPEG")
    if not head:
        raise ImageError(f"{path}: is empty; copy it again")
    file.seek(0)
    try:
        with read_by_library():
            return _size(file, head, path)
    except DamagedError:
        raise ImageError(f"{path}: {DAMAGED}") from None


def _size(file: BinaryIO, head: bytes, path: Path | str) -> tuple[int, int]:
    if head[:4] in TIFF_SIGNATURES:
        return _readable(tiff_page(file), path)
    if head.startswith(PNG_SIGNATURE):
        return struct.unpack_from(">II", head, 16)
    if head.startswith(JPEG_SIGNATURE):
        frame = next(content for marker, content in segments(file) if marker in JPEG_FRAMES)
        height, width = struct.unpack_from(">HH", frame, 1)
        return width, height
    if WEBP_SIGNATURE.match(head):
        image = WebPImageFile(file)  # Image.open would refuse large images that are read here
        if getattr(image, "is_animated", False):
            raise ImageError(f"{path}: is an animation; save one frame of it as a PNG")
        return image.size
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


def tiff_page(file: BinaryIO) -> TiffPage:
    """The largest page of a TIFF file, the first of equals: others are thumbnails, reduced copies and masks.

    Any exception means that the file is damaged, or has a page without a size.
    """
    order = byte_order(file.read(4))
    (at,), pages, seen = struct.unpack(f"{order}L", file.read(4)), list[TiffPage](), set[int]()
    while at and len(pages) < MOST_PAGES:
        if at in seen:
            raise ValueError("its directories form a circle")
        seen.add(at)
        values, at = directory(file, 0, order, at, TIFF_TAGS)
        pages.append(TiffPage(len(pages), **{TIFF_TAGS[tag]: int(values[tag][0]) for tag in TIFF_TAGS.keys() & values}))
    return max(pages, key=lambda page: page.width * page.height)


def segments(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Marker and content of the segments of a JPEG before its pixels."""
    file.seek(2)
    for _ in range(MOST_SEGMENTS):
        start, marker = file.read(2)
        if start != 0xFF or marker == 0xFF:  # junk, or a byte that fills
            file.seek(-1, io.SEEK_CUR)
        elif marker == JPEG_SCAN:
            return
        elif marker not in JPEG_ALONE:
            (length,) = struct.unpack(">H", file.read(2))
            yield marker, file.read(max(0, length - 2))


def byte_order(mark: bytes) -> Literal["<", ">"]:
    """The byte order of `struct` for the first bytes of a TIFF file or an EXIF block."""
    if mark[:2] not in (b"II", b"MM"):
        raise ValueError("it names no byte order")
    return "<" if mark[:2] == b"II" else ">"


def directory(file: BinaryIO, start: int, order: Literal["<", ">"], at: int, used: Collection[int]) -> tuple[Tags, int]:
    """The values of the `used` tags of a TIFF directory, and where the next one is, 0 for none.

    `start`: where the TIFF file, or the EXIF block, begins. Takes a time that does not depend on the numbers in it.
    """
    file.seek(start + at)
    (count,) = struct.unpack(f"{order}H", file.read(2))
    entries = np.frombuffer(file.read(count * DIRECTORY_ENTRY.itemsize), DIRECTORY_ENTRY.newbyteorder(order))
    following, tags = file.read(4), dict[int, bytes | tuple[float, ...]]()
    for tag, kind, number, inline in entries[np.isin(entries["tag"], list(used))].tolist():
        if tag in tags or kind not in TIFF_TYPES:
            continue
        letters = TIFF_TYPES[kind]
        most = MOST_TEXT if letters == "c" else MOST_VALUES
        value = struct.Struct(order + letters * min(number, most))
        if number * struct.calcsize(order + letters) > len(inline):
            file.seek(start + struct.unpack(f"{order}L", inline)[0])
            inline = file.read(value.size)
        numbers = value.unpack(inline[: value.size])
        if letters == "c":
            tags[tag] = b"".join(numbers) or b"\0"
        elif len(letters) == 2:
            tags[tag] = tuple(a / b if b else math.nan for a, b in zip(numbers[::2], numbers[1::2], strict=True))
        elif numbers:
            tags[tag] = numbers
    return tags, struct.unpack(f"{order}L", following)[0] if len(following) == 4 else 0


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
