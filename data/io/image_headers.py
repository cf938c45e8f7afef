"""The headers of image files: format and size, without decoding."""

from __future__ import annotations

import struct
from pathlib import Path

from data.errors import UserError

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_CHUNK_FRAME = 12  # length, kind and checksum of a chunk
JPEG_SIGNATURE = b"\xff\xd8\xff"
WEBP_ANIMATION = 0x02  # flag of the chunk VP8X (RFC 9649, section 2.7)
TIFF_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}  # signatures, and the order of bytes
TIFF_SUFFIXES = (".tif", ".tiff")  # raw photographs have these signatures too, and a small picture first
TIFF_WIDTH, TIFF_HEIGHT, TIFF_SHORT = 256, 257, 3  # tags, and the type of 16 bits
DAMAGED = "cannot be decoded: the file is truncated or damaged; save it again"
# JPEG markers that announce the frame's size: SOF0-SOF15 without DHT (C4), JPG (C8) and DAC (CC); ITU-T T.81, table B.1
JPEG_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class ImageError(UserError):
    """An image file that cannot be read or written, or is inconsistent with the others."""


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
            return _tiff_size(head, TIFF_ORDERS[head[:4]])
    except (struct.error, IndexError):
        return None
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


def _tiff_size(encoded: bytes, order: str) -> tuple[int, int] | None:
    """(width, height) in the first directory (TIFF 6.0, section 2); None without any, struct.error if it is not there.

    A directory is often at the end of the file.
    """
    (at,) = struct.unpack_from(f"{order}I", encoded, 4)
    (count,) = struct.unpack_from(f"{order}H", encoded, at)
    found = {}
    for entry in range(at + 2, at + 2 + 12 * count, 12):
        tag, kind = struct.unpack_from(f"{order}HH", encoded, entry)
        found[tag] = struct.unpack_from(f"{order}{'H' if kind == TIFF_SHORT else 'I'}", encoded, entry + 8)[0]
    return (found[TIFF_WIDTH], found[TIFF_HEIGHT]) if {TIFF_WIDTH, TIFF_HEIGHT} <= found.keys() else None
