"""Reads zip archives of `torch.save` without PyTorch and without executing code in them.

An archive has `data.pkl` and one entry per storage: torch/serialization.py of https://github.com/pytorch/pytorch,
function `_save`. The format of PyTorch before 1.6 is not supported.

The unpickler is Python's: the one in C would let a memo index allocate gigabytes. It calls given functions only, and
sets no attributes; keys are numbers and texts, since a recursive tuple as a key could take for ever.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from data.errors import DamagedError, read_by_library
from data.io.files import open_input
from models.checkpoints.ours import CheckpointError

# The published networks with their moments have 17 MB. The limit applies to the file and to the tensors, which may be
# larger than the file if strides are 0.
MAX_BYTES = 1 << 30

_LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # MAGIC_NUMBER of torch/serialization.py, pickled
_NUMPY_SCALARS = frozenset(("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"))
# Type of `torch.<name>Storage`.
_STORAGES = {"Float": "f4", "Double": "f8", "Half": "f2", "Long": "i8", "Int": "i4", "Short": "i2", "Char": "i1"}
_STORAGES |= {"Byte": "u1", "Bool": "b1"}


def read_torch_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a file of `torch.save`: nested dicts, lists and tuples, with tensors as separate arrays.

    Arrays are C-ordered in native byte order, 0-d tensors stay 0-d. Raises CheckpointError for a file that is missing,
    unreadable, damaged, not a dictionary, too large, or that contains anything but tensors and plain values; nothing in
    the file is executed.
    """
    try:
        with open_input(path) as file:
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
    if not start.startswith(b"PK\x03\x04"):
        raise RefusedError("is not a file of torch.save: give a ckpt_*.pth of the published code")
    try:
        with read_by_library(), zipfile.ZipFile(file) as archive:
            return _read_archive(archive, _checked_entries(archive, size))
    except RefusedError:
        raise
    except DamagedError as error:
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

    @cache
    def content(key: str) -> bytes:
        if f"data/{key}" not in entries:
            raise RefusedError(f"is damaged: it has no entry data/{key[:20]}")
        return archive.read(entries[f"data/{key}"])

    def storage(persistent_id: object) -> np.ndarray:
        match persistent_id:
            case ("storage", np.dtype() as kind, str() as key, _, int() as count) if _are_counts((count,)):
                if count * kind.itemsize > len(content(key)):
                    raise RefusedError("is damaged or truncated: a storage is shorter than it says")
                return np.frombuffer(content(key), np.dtype(order + kind.str[1:]), count)
        raise RefusedError("is damaged: it describes a storage in an unknown way")

    with archive.open(entries["data.pkl"]) as stream:
        data = stream.read(MAX_PICKLE_BYTES + 1)
    if len(data) > MAX_PICKLE_BYTES:
        raise RefusedError(f"holds a pickle of more than {MAX_PICKLE_BYTES >> 20} MiB")
    return _Unpickler(data, _names(_Tensors().rebuild), storage).load()


class _Tensors:
    """Makes arrays of storages, up to MAX_BYTES in total."""

    def __init__(self) -> None:
        self.bytes_left = MAX_BYTES

    def rebuild(self, storage: Any, offset: Any, size: object, stride: object, *_: object) -> np.ndarray:
        """`torch._utils._rebuild_tensor_v2`: a copy of the view; raises RefusedError for one outside its storage."""
        if getattr(storage, "ndim", 0) != 1 or type(size) is not tuple or type(stride) is not tuple:
            raise RefusedError("is damaged: a tensor has no storage, size or stride")
        if not _are_counts((offset, *size, *stride)) or len(size) != len(stride) or len(size) > 32:  # NumPy's
            raise RefusedError("is damaged: a tensor has an invalid size or stride")
        reach = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
        if math.prod(size) == 0:
            storage, offset, stride = storage[:0], 0, (0,) * len(size)
        elif reach >= len(storage):
            raise RefusedError("is damaged: a tensor exceeds its storage")
        self.bytes_left -= math.prod(size) * storage.itemsize
        if self.bytes_left < 0:
            raise RefusedError(f"would expand to more than {MAX_BYTES >> 20} MiB")
        strides = tuple(step * storage.itemsize for step in stride)
        view = np.lib.stride_tricks.as_strided(storage[offset:], size, strides)
        return view.astype(view.dtype.newbyteorder("="), order="C")


def _are_counts(values: tuple[object, ...]) -> bool:
    """Whether all are integers from 0 to 2**62."""
    return all(type(value) is int and 0 <= value <= 1 << 62 for value in values)


def _numpy_type(code: object, *_: object) -> np.dtype:
    """`numpy.dtype` of a number; PyTorch may store the learning rate as one."""
    if type(code) is not str or code not in _NUMPY_SCALARS:
        raise RefusedError("is damaged: it has a NumPy number of an unknown type")
    return np.dtype(f"<{code}")


def _numpy_scalar(kind: object, content: object) -> int | float | bool:
    """`numpy.core.multiarray.scalar`, as a plain number."""
    if not isinstance(kind, np.dtype) or type(content) is not bytes or len(content) != kind.itemsize:
        raise RefusedError("is damaged: it has a NumPy number of the wrong length")
    return np.frombuffer(content, kind)[0].item()


def _encode(text: object, encoding: object) -> bytes:
    """`_codecs.encode`, which pickle protocol 2 uses for bytes; those of a number are at most 8."""
    if type(text) is not str or encoding != "latin1" or len(text) > 8:
        raise RefusedError("is damaged: it encodes bytes in an unknown way")
    return text.encode("latin1")


def _names(rebuild: Callable[..., Any]) -> dict[str, object]:
    """The objects that a checkpoint may reference, by "module name"; `rebuild` makes tensors."""
    return {
        **{f"torch {name}Storage": np.dtype(code) for name, code in _STORAGES.items()},
        "collections OrderedDict": lambda: {},
        "torch._utils _rebuild_tensor_v2": rebuild,
        "torch._utils _rebuild_parameter": lambda tensor, *_: tensor,
        "numpy dtype": _numpy_type,
        "numpy.core.multiarray scalar": _numpy_scalar,
        "numpy._core.multiarray scalar": _numpy_scalar,
        "_codecs encode": _encode,
    }


# Checkpoints of the published networks have 25 kB. One byte can create a list or dictionary of 64 bytes.
MAX_PICKLE_BYTES = 4 << 20

# Sets hash their items, which may take for ever, and a bytearray takes the memory that it announces.
_UNUSED = ("load_empty_set", "load_additems", "load_frozenset", "load_bytearray8")
_Python: Any = pickle._Unpickler  # a type checker does not know its parts


class RefusedError(DamagedError):
    """The file is damaged or has content that no checkpoint needs; the text is a clause that says which."""


class _Unpickler(_Python):
    """Python's unpickler, which calls only the functions of `names`; none of its operations recurses.

    `names` maps "module name" to its replacement. Functions in it may be called with any arguments; other values must
    not be callable. `persistent` resolves persistent ids. Raises RefusedError for anything else, including names that
    are not in `names`, and any exception for a damaged pickle.
    """

    def __init__(self, data: bytes, names: Mapping[str, object], persistent: Callable[[object], object]) -> None:
        super().__init__(io.BytesIO(data))
        self.names = names
        self.persistent_load = persistent

    def find_class(self, module: str, name: str) -> object:
        """The replacement of a name; raises RefusedError if there is none."""
        wanted = f"{module} {name}"
        if wanted not in self.names:
            shown = repr(f"{module}.{name}"[:100])  # untrusted text, so shortened and escaped
            raise RefusedError(f"references {shown}, which a published checkpoint does not need; nothing was executed")
        return self.names[wanted]

    def load_build(self) -> None:
        """BUILD: ignore the attributes that PyTorch adds to a state dict, and the byte order of a NumPy type."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict | np.dtype):
            raise RefusedError("is damaged: its pickle sets the state of an object that has none")

    def load_setitem(self) -> None:
        """SETITEM: one key and its value."""
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key], [value])

    def load_setitems(self) -> None:
        """SETITEMS: alternating keys and values."""
        items = self.pop_mark()
        self._fill(items[::2], items[1::2])

    def _fill(self, keys: list[Any], values: list[Any]) -> None:
        """Fill the dictionary on top; keys must be strings or 64-bit integers, since other hashes may hang."""
        target = self.stack[-1]
        are_keys = all(type(key) is str or (type(key) is int and key.bit_length() <= 64) for key in keys)
        if not isinstance(target, dict) or not are_keys:
            raise RefusedError("is damaged: its pickle sets an invalid key of a dictionary")
        target.update(zip(keys, values, strict=True))


_Unpickler.dispatch = {
    code: getattr(_Unpickler, handler.__name__)  # the override if there is one, else the inherited handler
    for code, handler in pickle._Unpickler.dispatch.items()
    if handler.__name__ not in _UNUSED
}
