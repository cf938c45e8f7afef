"""Reads small matrices from untrusted npz files, without unpickling and with limits on size.

An npz file is a zip archive of .npy members (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
`numpy.load` allocates the size in a member's header and decompresses without a limit. Here the sizes in the archive's
directory and in the header are checked first.
"""

from __future__ import annotations

import io
import math
import re
import tokenize
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np

from data.errors import DAMAGE, LONGEST_REASON, reason

# A 4 x 4 matrix of float64 has 256 bytes with its header; the limit allows longer headers and wider types.
MAX_MEMBER_BYTES = 1 << 16
# A thousand views with inverses and bounds have 2 MB; the archive's directory is read completely.
MAX_FILE_BYTES = 1 << 30
# The methods that numpy writes. zipfile decompresses the other methods without a limit.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
SUFFIX = ".npy"

# Exceptions of zipfile, zlib and numpy for files that are not npz, are damaged or encrypted, or contain objects.
_DAMAGE = (*DAMAGE, tokenize.TokenError, zipfile.BadZipFile, zlib.error)


class NpzError(Exception):
    """The file or a member cannot be used; the text is a clause that says why."""


def read_members(path: Path, wanted: re.Pattern | None, most: int = MAX_MEMBER_BYTES) -> dict[str, np.ndarray]:
    """The arrays of the npz file at `path` whose names match `wanted` (None: all), by name without .npy.

    Raises NpzError for a file that is not npz, for a member that is damaged, contains objects or decompresses to more
    than `most` bytes, and OSError for a file that cannot be read.
    """
    if path.stat().st_size > MAX_FILE_BYTES:
        raise NpzError(f"it is larger than {MAX_FILE_BYTES >> 20} MiB")
    try:
        with zipfile.ZipFile(path) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns of headers written by Python 2 but reads them
            entries = {entry.filename.removesuffix(SUFFIX): entry for entry in archive.infolist()}
            chosen = {key: entry for key, entry in entries.items() if not wanted or wanted.fullmatch(key)}
            return {key: _member(archive, entry, most) for key, entry in chosen.items()}
    except _DAMAGE as error:
        raise NpzError("it is not an npz archive, or it is damaged") from error


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> np.ndarray:
    """One array; raises NpzError, naming it, if it is too large, unsupported or damaged."""
    name = entry.filename[:LONGEST_REASON]
    if entry.file_size > most:
        raise NpzError(f"{name} would decompress to {entry.file_size} bytes, far more than it needs")
    if entry.compress_type not in METHODS:
        raise NpzError(f"{name} has a compression method that numpy never uses")
    try:
        return _parse(io.BytesIO(archive.read(entry)), name, most)
    except _DAMAGE as error:
        raise NpzError(f"{name}: {reason(error)}") from error


def read_npy(path: Path, most: int) -> np.ndarray:
    """The array in the .npy file at `path`.

    Raises NpzError for a file of more than `most` bytes, or one that is damaged or contains objects, and OSError for a
    file that cannot be read.
    """
    if path.stat().st_size > most:
        raise NpzError(f"it is larger than {most >> 20} MiB")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _parse(io.BytesIO(path.read_bytes()), path.name, most)
    except _DAMAGE as error:
        raise NpzError(reason(error)) from error


def _parse(stream: io.BytesIO, name: str, most: int) -> np.ndarray:
    """The .npy array in `stream`; raises NpzError if its header claims more than `most` bytes."""
    version = np.lib.format.read_magic(stream)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > most:
        raise NpzError(f"{name} claims {math.prod(shape)} values, far more than it needs")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)
