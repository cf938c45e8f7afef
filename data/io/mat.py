"""Reads arrays of numbers from untrusted MATLAB files of version 5; scipy's reader crashes for damaged ones.

Layout: "MAT-File Format" (MathWorks), chapter "Level 5 MAT-Files".
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator
from itertools import islice

import numpy as np

from data.errors import DamagedError, read_by_library

HEADER_BYTES, ORDER_AT = 128, 126
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, COMPRESSED = 14, 15
CLASSES, COMPLEX = range(6, 16), 0x800  # of arrays: floats and integers; a flag


def read_mat(content: bytes, wanted: Collection[str], most: int) -> dict[str, np.ndarray]:
    """The real arrays of numbers with `wanted` names; raises DamagedError for other files.

    most: bytes that compressed parts may have in all.
    """
    with read_by_library():
        order, found = {b"IM": "<", b"MI": ">"}[content[ORDER_AT:HEADER_BYTES]], dict[str, np.ndarray]()
        for kind, data in _elements(memoryview(content)[HEADER_BYTES:], order):
            if kind == COMPRESSED:
                whole = zlib.decompressobj().decompress(data, most)
                most -= len(whole)
                if most <= 0:
                    raise DamagedError("its parts are too large")
                kind, data = next(_elements(memoryview(whole), order))
            if kind == MATRIX:
                found |= _array(data, order, wanted)
        return found


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and content of each element."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start, end = at + 8, at + 8 + size + (-size % 8 if kind != COMPRESSED else 0)
        if kind >> 16:  # up to four bytes of content within the tag
            kind, size, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        if start + size > len(data):
            raise DamagedError("it is truncated")
        yield kind, data[start : start + size]
        at = end


def _array(data: memoryview, order: str, wanted: Collection[str]) -> dict[str, np.ndarray]:
    """The array by its name; {} if it is not wanted, or has no real numbers."""
    (_, flags), (_, sides), (_, name), *values = islice(_elements(data, order), 4)
    (kind,) = struct.unpack_from(f"{order}I", flags)
    text = bytes(name).decode("latin-1")
    if text not in wanted or kind & 0xFF not in CLASSES or kind & COMPLEX:
        return {}
    ((number_type, numbers),) = values
    shape = np.frombuffer(sides, f"{order}i4").tolist()
    return {text: np.frombuffer(numbers, order + TYPES[number_type]).reshape(shape, order="F")}
