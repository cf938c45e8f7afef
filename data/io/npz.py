"""Small matrices out of untrusted npz files: nothing is unpickled, nothing grows without a bound.

An npz file is a zip archive of .npy members (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
`numpy.load` allocates what a member's header claims and unpacks as far as it goes; here the archive's directory and
the header are held to what a matrix can need first.
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

# A 4 x 4 matrix of float64 takes 256 bytes with its header; the bound leaves room for odd headers and wider types.
MAX_MEMBER_BYTES = 1 << 16
# A thousand views with their inverses and bounds take 2 MB; the directory is read as a whole.
MAX_FILE_BYTES = 1 << 30
# What numpy and savez_compressed write. zipfile unpacks the other methods without a bound on what comes out.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
SUFFIX = ".npy"

# What zipfile, zlib and numpy raise for files that are no npz, are damaged, encrypted or hold objects.
_DAMAGE = (*DAMAGE, tokenize.TokenError, zipfile.BadZipFile, zlib.error)


class NpzError(Exception):
    """The file or a member cannot be used; the text says why, as part of a sentence."""


def read_members(path: Path, wanted: re.Pattern | None, most: int = MAX_MEMBER_BYTES) -> dict[str, np.ndarray]:
    """The arrays that the npz file at `path` has under `wanted` names (None: all), by name without .npy.

    Raises NpzError for a file that is no npz, for a member that is damaged, holds objects or would unpack to more than
    `most` bytes, and OSError for a file that cannot be read.
    """
    if path.stat().st_size > MAX_FILE_BYTES:
        raise NpzError(f"it is larger than {MAX_FILE_BYTES >> 20} MiB")
    try:
        with zipfile.ZipFile(path) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns of headers written by Python 2, which are read all the same
            entries = {entry.filename.removesuffix(SUFFIX): entry for entry in archive.infolist()}
            chosen = {key: entry for key, entry in entries.items() if not wanted or wanted.fullmatch(key)}
            return {key: _member(archive, entry, most) for key, entry in chosen.items()}
    except _DAMAGE as error:
        raise NpzError("it is no npz archive, or a damaged one") from error


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> np.ndarray:
    """One array, held to the bounds before it is unpacked; raises NpzError, naming it, for whatever is wrong."""
    name = entry.filename[:LONGEST_REASON]
    if entry.file_size > most:
        raise NpzError(f"{name} would unpack to {entry.file_size} bytes, far more than it needs")
    if entry.compress_type not in METHODS:
        raise NpzError(f"{name} is compressed in a way numpy never uses")
    try:
        return _parse(io.BytesIO(archive.read(entry)), name, most)
    except _DAMAGE as error:
        raise NpzError(f"{name}: {reason(error)}") from error


def read_npy(path: Path, most: int) -> np.ndarray:
    """The one array of the .npy file at `path`.

    Raises NpzError for a file of more than `most` bytes, and one that is damaged or holds objects; OSError for a file
    that cannot be read.
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
    """The array in the .npy format that `stream` holds, its header held to `most` bytes first."""
    version = np.lib.format.read_magic(stream)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > most:
        raise NpzError(f"{name} claims {math.prod(shape)} values, far more than it needs")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)
