"""Reads zip archives of `torch.save` without PyTorch and without executing code in them.

An archive has `data.pkl` and one entry per storage: torch/serialization.py of https://github.com/pytorch/pytorch,
function `_save`. The format of PyTorch before 1.6 is not supported.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from models.checkpoints.ours import CheckpointError
from models.checkpoints.torch_pickle import RefusedError, StateDict, read_pickle

# The published networks with their moments have 17 MB. The limit applies to the file and to the tensors, which may be
# larger than the file if strides are 0.
MAX_BYTES = 1 << 30
MAX_DIMENSIONS = 32  # NumPy's

_ZIP_START = b"PK\x03\x04"
_LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # MAGIC_NUMBER of torch/serialization.py, pickled
# Exceptions of zipfile for damaged archives.
_ZIP_DAMAGE = (zipfile.BadZipFile, RuntimeError, OSError, EOFError, OverflowError, struct.error, ValueError, KeyError)
_NUMPY_SCALARS = frozenset(("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"))


@dataclass(frozen=True)
class _StorageType:
    """`torch.<name>Storage`."""

    code: str  # NumPy type code without byte order
    brain: bool = False  # bfloat16: the upper halves of float32


@dataclass(frozen=True)
class _Storage:
    """A storage, of which tensors are views."""

    type: _StorageType
    values: np.ndarray  # [n], in the file's byte order


_STORAGE_TYPES = {
    "torch FloatStorage": _StorageType("f4"),
    "torch DoubleStorage": _StorageType("f8"),
    "torch HalfStorage": _StorageType("f2"),
    "torch BFloat16Storage": _StorageType("u2", brain=True),
    "torch LongStorage": _StorageType("i8"),
    "torch IntStorage": _StorageType("i4"),
    "torch ShortStorage": _StorageType("i2"),
    "torch CharStorage": _StorageType("i1"),
    "torch ByteStorage": _StorageType("u1"),
    "torch BoolStorage": _StorageType("b1"),
}


def read_torch_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a file of `torch.save`: nested dicts, lists and tuples, with tensors as separate arrays.

    Arrays are C-ordered in native byte order, 0-d tensors stay 0-d, bfloat16 becomes float32. Raises CheckpointError
    for a file that is missing, unreadable, damaged, not a dictionary, too large, or that contains anything but tensors
    and plain values; nothing in the file is executed.
    """
    try:
        with open(path, "rb") as file:
            value = _read(file)
    except RefusedError as error:
        raise CheckpointError(f"The checkpoint {path} {error}.") from error
    except FileNotFoundError as error:
        raise CheckpointError(f"There is no checkpoint {path}: give the path of an existing file.") from error
    except OSError as error:
        raise CheckpointError(f"The checkpoint {path} cannot be read ({error.strerror or error}).") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"The checkpoint {path} is not a dictionary: give a ckpt_*.pth of the published code.")
    return value


def _read(file: IO[bytes]) -> Any:
    """The value in an archive; raises RefusedError for other files, and archives that are too large or damaged."""
    size = os.fstat(file.fileno()).st_size
    if size > MAX_BYTES:
        raise RefusedError(f"is larger than {MAX_BYTES >> 20} MiB, too large for a NeuS checkpoint")
    start = file.read(len(_LEGACY_START))
    if start == _LEGACY_START:
        raise RefusedError(
            "is in the format of PyTorch before 1.6: read it with torch.load, write it again with torch.save"
        )
    if not start.startswith(_ZIP_START):
        raise RefusedError("is not a file of torch.save: give a ckpt_*.pth of the published code")
    try:
        with zipfile.ZipFile(file) as archive:
            return _read_archive(archive, _checked_entries(archive, size))
    except _ZIP_DAMAGE as error:
        raise RefusedError("is damaged or truncated: copy it again") from error


def _checked_entries(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The entries by name below the archive's one top folder.

    Raises RefusedError for compressed entries (torch.save writes none) and for entries larger than the archive, since
    both could expand a small file to gigabytes.
    """
    entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size for entry in entries):
        raise RefusedError("has compressed entries, which torch.save does not write")
    if sum(entry.file_size for entry in entries) > size:
        raise RefusedError("is damaged: its entries are larger than the file")
    values = [name for name in archive.namelist() if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(values) != 1:
        raise RefusedError("is a zip archive, but not of torch.save: it does not have a single data.pkl")
    root = values[0].removesuffix("data.pkl")
    return {entry.filename.removeprefix(root): entry for entry in entries}


def _read_archive(archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]) -> Any:
    """The pickled value; storages are read when they are first used."""
    order = ">" if "byteorder" in entries and archive.read(entries["byteorder"]).strip() == b"big" else "<"
    contents: dict[str, bytes] = {}

    def storage(persistent_id: object) -> _Storage:
        match persistent_id:
            case ("storage", _StorageType() as kind, str() as key, _, int() as count) if _are_counts((count,)):
                if f"data/{key}" not in entries:
                    raise RefusedError(f"is damaged: it has no entry data/{key[:20]}")
                if key not in contents:
                    contents[key] = archive.read(entries[f"data/{key}"])
                return _storage_of(contents[key], kind, count, order)
        raise RefusedError("is damaged: it describes a storage in an unknown way")

    with archive.open(entries["data.pkl"]) as stream:
        return read_pickle(stream, _names(_Tensors().rebuild), storage)


def _storage_of(content: bytes, kind: _StorageType, count: int, order: str) -> _Storage:
    """`count` numbers from the start of `content`."""
    dtype = np.dtype(order + kind.code)
    if count * dtype.itemsize > len(content):
        raise RefusedError("is damaged or truncated: a storage is shorter than it says")
    return _Storage(kind, np.frombuffer(content, dtype, count))


class _Tensors:
    """Makes arrays of storages, up to MAX_BYTES in total."""

    def __init__(self) -> None:
        self.bytes_left = MAX_BYTES

    def rebuild(self, storage: object, offset: object, size: object, stride: object, *_: object) -> np.ndarray:
        """`torch._utils._rebuild_tensor_v2`: a copy of the view; raises RefusedError for one outside its storage."""
        if not isinstance(storage, _Storage) or type(size) is not tuple or type(stride) is not tuple:
            raise RefusedError("is damaged: a tensor has no storage, size or stride")
        if not _are_counts((offset, *size, *stride)) or len(size) != len(stride) or len(size) > MAX_DIMENSIONS:
            raise RefusedError("is damaged: a tensor has an invalid size or stride")
        values = storage.values
        reach = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
        if math.prod(size) == 0:
            values, offset, stride = values[:0], 0, (0,) * len(size)
        elif reach >= len(values):
            raise RefusedError("is damaged: a tensor exceeds its storage")
        self.bytes_left -= math.prod(size) * (4 if storage.type.brain else values.itemsize)
        if self.bytes_left < 0:
            raise RefusedError(f"would expand to more than {MAX_BYTES >> 20} MiB")
        strides = tuple(step * values.itemsize for step in stride)
        return _native(np.lib.stride_tricks.as_strided(values[offset:], size, strides), storage.type)


def _native(view: np.ndarray, kind: _StorageType) -> np.ndarray:
    """A C-ordered copy in native byte order; bfloat16, the upper half of a float32, is extended to float32."""
    if kind.brain:
        bits = view.astype(np.uint32, order="C")
        np.left_shift(bits, np.uint32(16), out=bits)
        return bits.view(np.float32)
    if kind.code == "b1":
        return np.array(view.view(np.uint8) != 0)
    return view.astype(view.dtype.newbyteorder("="), order="C")


def _are_counts(values: tuple[object, ...]) -> bool:
    """Whether all are integers from 0 to 2**62."""
    return all(type(value) is int and 0 <= value <= 1 << 62 for value in values)


class _NumpyType:
    """Replaces `numpy.dtype`; PyTorch may store the learning rate as a NumPy number."""

    def __init__(self, code: object, *_: object) -> None:
        if type(code) is not str or code not in _NUMPY_SCALARS:
            raise RefusedError("is damaged: it has a NumPy number of an unknown type")
        self.dtype = np.dtype(f"<{code}")

    def take_state(self, state: object) -> None:
        """Set the byte order, the second part of a dtype's state."""
        if type(state) is tuple and len(state) > 1 and state[1] == ">":
            self.dtype = self.dtype.newbyteorder(">")


def _numpy_scalar(kind: object, content: object) -> int | float | bool:
    """`numpy.core.multiarray.scalar`, as a plain number."""
    if not isinstance(kind, _NumpyType) or type(content) is not bytes or len(content) != kind.dtype.itemsize:
        raise RefusedError("is damaged: it has a NumPy number of the wrong length")
    return np.frombuffer(content, kind.dtype)[0].item()


def _encode(text: object, encoding: object) -> bytes:
    """`_codecs.encode`, which pickle protocol 2 uses for bytes; those of a number are at most 8."""
    if type(text) is not str or encoding != "latin1" or len(text) > 8:
        raise RefusedError("is damaged: it encodes bytes in an unknown way")
    return text.encode("latin1")


def _names(rebuild: Callable[..., Any]) -> dict[str, object]:
    """The objects that a checkpoint may reference, by "module name"; `rebuild` makes tensors."""
    return {
        **_STORAGE_TYPES,
        "collections OrderedDict": lambda: StateDict(),
        "torch._utils _rebuild_tensor_v2": rebuild,
        "torch._utils _rebuild_parameter": lambda tensor, *_: tensor,
        "numpy dtype": lambda *parts: _NumpyType(*parts),
        "numpy.core.multiarray scalar": _numpy_scalar,
        "numpy._core.multiarray scalar": _numpy_scalar,
        "_codecs encode": _encode,
    }
