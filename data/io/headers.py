"""The headers of image files: format and size, without decoding; pages of TIFF files."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import ImageFileDirectory_v2
from PIL.WebPImagePlugin import WebPImageFile

from data.errors import DamagedError, UserError, read_by_library

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_CHUNK_FRAME = 12  # length, kind and checksum of a chunk
IMAGE_HEAD_BYTES = 24  # up to the size in a PNG
JPEG_SIGNATURE = b"\xff\xd8\xff"
WEBP_SIGNATURE = re.compile(b"RIFF....WEBP", re.DOTALL)
TIFF_SIGNATURES = (b"II*\0", b"MM\0*")  # signatures
TIFF_SUFFIXES = (".tif", ".tiff")  # raw photographs have these signatures too, and a small picture first
BIG_TIFFS = (b"II+\0", b"MM\0+")
MOST_PAGES = 1000
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


def header_size(file: BinaryIO, path: Path | str) -> tuple[int, int]:
    """(width, height) in the header of an image file; raises ImageError for a damaged one and for other formats."""
    head = file.read(IMAGE_HEAD_BYTES)
    if head[:4] in BIG_TIFFS:
        raise ImageError(f"{path}: is a BigTIFF, which is not read; save it as TIFF or PNG")
    if head[:4] in TIFF_SIGNATURES and Path(path).suffix.lower() not in TIFF_SUFFIXES:
        raise ImageError(f"{path}: is a raw photograph (DNG, NEF, CR2, ...); develop it and save it as TIFF or JPEG")
    if not head:
        raise ImageError(f"{path}: is empty; copy it again")
    file.seek(0)
    try:
        with read_by_library():
            if head[:4] in TIFF_SIGNATURES:
                page = tiff_page(file)  # OpenCV reads some samples as others, or not at all
                if page.bits > 16 or page.form != 1:
                    kind = "unsigned integers" if page.form == 1 else "floats or signed integers"
                    raise ImageError(f"{path}: has {kind} of {page.bits} bits; save it with 8 or 16 bits per channel")
                if page.planes == 2 and page.bits == 16 and page.samples > 1:
                    raise ImageError(
                        f"{path}: has its channels one after the other (planar); save it interleaved, or as PNG"
                    )
                if page.photometric < 2 and page.samples > 1:
                    raise ImageError(f"{path}: is grey with an alpha channel; save it as RGBA or PNG")
                return page.width, page.height
            if head.startswith(PNG_SIGNATURE):
                return struct.unpack_from(">II", head, 16)
            if head.startswith(JPEG_SIGNATURE):
                return JpegImageFile(file).size  # Image.open would refuse large images that are read here
            if WEBP_SIGNATURE.match(head):
                image = WebPImageFile(file)
                if getattr(image, "is_animated", False):
                    raise ImageError(f"{path}: is an animation; save one frame of it as a PNG")
                return image.size
            raise ImageError(f"{path}: its content is neither PNG, JPEG, WebP nor TIFF; save it as one of them")
    except DamagedError:
        raise ImageError(f"{path}: {DAMAGED}") from None


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
    directory, pages, positions = ImageFileDirectory_v2(file.read(8)), list[TiffPage](), set[int]()
    while directory.next and directory.next not in positions and len(pages) < MOST_PAGES:
        positions.add(directory.next)
        file.seek(directory.next)
        directory.load(file)
        known = {name: directory[tag] for tag, name in TIFF_TAGS.items() if tag in directory}
        values = {name: value[0] if isinstance(value, tuple) else value for name, value in known.items() if value != ()}
        pages.append(TiffPage(len(pages), **{name: int(value) for name, value in values.items()}))
    return max(pages, key=lambda page: page.width * page.height)


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
