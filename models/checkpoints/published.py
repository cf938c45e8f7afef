"""Checkpoints of the published NeuS (https://github.com/Totoro97/NeuS, commit 6e0a230, `exp_runner.save_checkpoint`).

They are zip archives of `torch.save`: `data.pkl`, and one entry per storage (torch/serialization.py of
https://github.com/pytorch/pytorch, function `_save`). They are read without PyTorch and without executing code in them.
The format of PyTorch before 1.6 is not supported.

They contain the state dicts of four networks, the state of `torch.optim.Adam` and the step. The published code reads
images with OpenCV and trains in BGR order; here colours are RGB.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import re
import zipfile
from collections import OrderedDict
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from data.errors import DamagedError, read_by_library
from data.io.files import open_input
from models.checkpoints.ours import LARGEST_STEP, StateError, check_moments
from models.training.checkpoint import MOMENTS, Checkpoint, CheckpointError

# The published networks with their moments have 17 MB. The limit applies to the file and to the tensors, which may be
# larger than the file if strides are 0.
MAX_ARCHIVE_BYTES = 1 << 30
# Checkpoints of the published networks have 25 kB. One byte can create a list or dictionary of 64 bytes.
MAX_PICKLE_BYTES = 4 << 20
_LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # MAGIC_NUMBER of torch/serialization.py, pickled
# Type of `torch.<name>Storage`.
_STORAGES = {"Float": "f4", "Double": "f8", "Half": "f2", "Long": "i8", "Int": "i4", "Short": "i2", "Char": "i1"}
_STORAGES |= {"Byte": "u1", "Bool": "b1"}

# In the order in which the published Runner passes their parameters to Adam.
NETWORKS = ("nerf", "sdf_network_fine", "variance_network_fine", "color_network_fine")
_REVERSED = [2, 1, 0]  # BGR to RGB
_COLOR_LAYER = re.compile(r"lin(\d+)\.(weight_v|weight_g|weight|bias)")
# The names of torch.nn.utils.parametrizations.weight_norm, the successor of torch.nn.utils.weight_norm.
_NEWER_NAMES = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}

Tensors = dict[str, dict[str, np.ndarray]]  # network -> state-dict name -> array


class RefusedError(DamagedError):
    """The file is damaged or has content that no checkpoint needs; the text is a clause that says which."""


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
    if size > MAX_ARCHIVE_BYTES:
        raise RefusedError(f"is larger than {MAX_ARCHIVE_BYTES >> 20} MiB, too large for a NeuS checkpoint")
    start = file.read(len(_LEGACY_START))
    if start == _LEGACY_START:
        raise RefusedError(
            "is in the format of PyTorch before 1.6: read it with torch.load, write it again with torch.save"
        )
    if not start.startswith(b"PK\x03\x04"):
        raise RefusedError("is not a file of torch.save: give a ckpt_*.pth of the published code")
    try:
        with read_by_library(), zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            # Compressed and overlapping entries could expand a small file to gigabytes.
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise RefusedError("has compressed entries, which torch.save does not write")
            if sum(entry.file_size for entry in entries) > size:
                raise RefusedError("is damaged: its entries are larger than the file")
            pickles = [name for name in archive.namelist() if name.endswith("/data.pkl") and name.count("/") == 1]
            if len(pickles) != 1:
                raise RefusedError("is a zip archive, but not of torch.save: it does not have a single data.pkl")
            if archive.getinfo(pickles[0]).file_size > MAX_PICKLE_BYTES:
                raise RefusedError(f"holds a pickle of more than {MAX_PICKLE_BYTES >> 20} MiB")
            return _Unpickler(archive, pickles[0].removesuffix("data.pkl")).load()
    except RefusedError:
        raise
    except DamagedError as error:
        raise RefusedError("is damaged or truncated: copy it again") from error


_Unpickler_of_Python: Any = pickle._Unpickler  # a type checker does not know its parts


class _Unpickler(_Unpickler_of_Python):
    """Python's unpickler with the few names that a checkpoint needs; storages are read when they are first used.

    The unpickler in C would take the memory for as many objects as a file claims to have.
    """

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        """`root`: the prefix of the names of all entries, with a slash."""
        super().__init__(io.BytesIO(archive.read(f"{root}data.pkl")))
        names = archive.namelist()
        order = ">" if f"{root}byteorder" in names and archive.read(f"{root}byteorder").strip() == b"big" else "<"
        bytes_left = MAX_ARCHIVE_BYTES  # of all tensors

        @cache
        def content(key: str) -> bytes:
            if f"{root}data/{key}" not in names:
                raise RefusedError(f"is damaged: it has no entry data/{key[:20]}")
            return archive.read(f"{root}data/{key}")

        def storage(persistent_id: Any) -> np.ndarray:
            _, kind, key, _, count = persistent_id
            if not _are_counts((count,)) or count * np.dtype(kind).itemsize > len(content(key)):
                raise RefusedError("is damaged or truncated: a storage is shorter than it says")
            return np.frombuffer(content(key), order + kind, count)

        def tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: object) -> np.ndarray:
            """`torch._utils._rebuild_tensor_v2`: a copy of the view; raises RefusedError for one beyond its storage."""
            nonlocal bytes_left
            if not _are_counts((offset, *size, *stride)) or len(size) != len(stride):
                raise RefusedError("is damaged: a tensor has an invalid size or stride")
            if math.prod(size) == 0:
                storage, offset, stride = storage[:0], 0, (0,) * len(size)
            elif offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) >= len(storage):
                raise RefusedError("is damaged: a tensor exceeds its storage")
            bytes_left -= math.prod(size) * storage.itemsize
            if bytes_left < 0:
                raise RefusedError(f"would expand to more than {MAX_ARCHIVE_BYTES >> 20} MiB")
            strides = tuple(step * storage.itemsize for step in stride)
            view = np.lib.stride_tricks.as_strided(storage[offset:], size, strides)
            return view.astype(view.dtype.newbyteorder("="), order="C")

        self.persistent_load = storage
        self.allowed = {
            **{f"torch.{name}Storage": code for name, code in _STORAGES.items()},
            "collections.OrderedDict": OrderedDict,
            "torch._utils._rebuild_tensor_v2": tensor,
            "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
            "numpy.dtype": _NumberType,
            "numpy.core.multiarray.scalar": _number,
            "numpy._core.multiarray.scalar": _number,
            "_codecs.encode": _number_bytes,
        }

    def find_class(self, module: str, name: str) -> object:
        """The replacement of a name; raises RefusedError if there is none."""
        if f"{module}.{name}" not in self.allowed:
            quoted = repr(f"{module}.{name}"[:100])  # untrusted text, so shortened and escaped
            raise RefusedError(f"references {quoted}, which a published checkpoint does not need; nothing was executed")
        return self.allowed[f"{module}.{name}"]


def _are_counts(values: tuple[object, ...]) -> bool:
    """Whether all are integers from 0 to 2**62."""
    return all(type(value) is int and 0 <= value <= 1 << 62 for value in values)


class _NumberType:
    """`numpy.dtype` of a number, such as the learning rate, which the published code computes with NumPy."""

    def __init__(self, code: str, *_: object) -> None:
        self.type = np.dtype(code)
        if self.type.kind not in "biuf":
            raise RefusedError("is damaged: it has a NumPy number of an unknown type")

    def __setstate__(self, state: object) -> None:
        """Ignore the byte order, which is that of x86."""


def _number(kind: _NumberType, content: bytes) -> int | float | bool:
    """`numpy.core.multiarray.scalar`, as a plain number."""
    return np.frombuffer(content, kind.type, 1)[0].item()


def _number_bytes(text: str, encoding: str) -> bytes:
    """`_codecs.encode`, which pickle protocol 2 uses for bytes; those of a number are at most 8."""
    if encoding != "latin1" or len(text) > 8:
        raise RefusedError("is damaged: it encodes bytes in an unknown way")
    return text.encode("latin1")


def to_checkpoint(raw: dict[str, Any], name: str = "the published checkpoint") -> Checkpoint:
    """Convert the result of `read_torch_checkpoint`: float32, RGB, Adam's moments by name.

    `name` is used in errors. Parameters without Adam state (an unused background network) get zero moments. Raises
    CheckpointError for a missing part, and for moments of wrong shape.
    """
    try:
        tensors = {network: _state_dict(raw, network) for network in NETWORKS}
        step = _count(_part(raw, "iter_step"), "iter_step")
        moments, adam_steps = _adam(_part(raw, "optimizer"), tensors)
        check_moments(moments)
        colors = _color_names(tensors)
    except StateError as error:
        raise CheckpointError(f"{name} is not a checkpoint of the published NeuS: {error}.") from error
    for name in colors:  # from blue, green, red
        network, _, key = name.partition(".")
        for named, own in ((tensors[network], key), *((moment, name) for moment in moments.values())):
            named[own] = named[own][_REVERSED]
    return Checkpoint(step, tensors, moments, adam_steps, {"source": "published NeuS"})


def _part(raw: object, key: str) -> Any:
    """raw[key]; raises StateError if it is missing."""
    if not isinstance(raw, dict) or key not in raw:
        raise StateError(f"it has no '{key}'")
    return raw[key]


def _state_dict(raw: dict[str, Any], network: str) -> dict[str, np.ndarray]:
    """One network's parameters under their published names, in their order."""
    named = _part(raw, network)
    if not isinstance(named, dict):
        raise StateError(f"its '{network}' is not a state dict")
    tensors = {}
    for key, array in named.items():
        published = str(key)
        for newer, older in _NEWER_NAMES.items():
            published = published.replace(newer, older)
        tensors[published] = _float32(array, f"{network}.{key}")
    return tensors


def _float32(array: object, what: str) -> np.ndarray:
    """`array` as float32; raises StateError for other types, and for NaN and Inf of a diverged training."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        raise StateError(f"its '{what}' is not a tensor of real numbers")
    with np.errstate(over="ignore"):
        values = array.astype(np.float32)
    if not np.isfinite(values).all():
        raise StateError(f"its '{what}' contains NaN or infinite numbers")
    return values


def _count(value: object, what: str) -> int:
    """A number of steps: an integer or, from newer versions of PyTorch, a tensor with one element."""
    number = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
    if not isinstance(number, int | float) or not 0 <= number <= LARGEST_STEP or number != number // 1:
        raise StateError(f"its '{what}' is not a number of steps")
    return int(number)


def _adam(optimizer: object, tensors: Tensors) -> tuple[dict[str, dict[str, np.ndarray]], int]:
    """Adam's moments ("exp_avg", "exp_avg_sq" -> "<network>.<name>" -> array) and its number of steps.

    Adam numbers the parameters in the order of the networks and of their state dicts; moments without state are zero.
    """
    parameters = {f"{network}.{key}": array for network, named in tensors.items() for key, array in named.items()}
    states, groups = _part(optimizer, "state"), _part(optimizer, "param_groups")
    try:
        indices = [index for group in groups for index in group["params"]]
        states = [states.get(index) for index in indices]
    except (TypeError, LookupError, AttributeError) as error:
        raise StateError("its optimizer's 'param_groups' and 'state' are not those of Adam") from error
    if len(indices) != len(parameters):
        raise StateError(f"its optimizer has {len(indices)} parameters, its networks have {len(parameters)}")
    moments: dict[str, dict[str, np.ndarray]] = {moment: {} for moment in MOMENTS}
    steps = {_count(_part(state, "step"), "optimizer.step") for state in states if state is not None}
    for state, (name, parameter) in zip(states, parameters.items(), strict=True):
        for moment in MOMENTS:
            array = np.zeros_like(parameter) if state is None else _float32(_part(state, moment), f"optimizer.{moment}")
            if array.shape != parameter.shape:
                shapes = f"{array.shape}, not {parameter.shape}"
                raise StateError(f"its optimizer's '{moment}' of '{name}' has shape {shapes}")
            moments[moment][name] = array
    if len(steps) > 1:
        raise StateError("its optimizer has taken different numbers of steps for different parameters")
    return moments, max(steps, default=0)


def _color_names(tensors: Tensors) -> list[str]:
    """The "<network>.<name>" of every parameter whose rows are the three colours.

    They are the last layer of the colour network and the background's `rgb_linear`.
    """
    layers = [match for match in map(_COLOR_LAYER.fullmatch, tensors["color_network_fine"]) if match]
    if not layers:
        raise StateError("its 'color_network_fine' has no layers")
    last = max(int(match[1]) for match in layers)
    names = [f"color_network_fine.{match[0]}" for match in layers if int(match[1]) == last]
    names += [f"nerf.{name}" for name in ("rgb_linear.weight", "rgb_linear.bias") if name in tensors["nerf"]]
    for name in names:
        network, _, key = name.partition(".")
        if tensors[network][key].shape[:1] != (len(_REVERSED),):
            raise StateError(f"its '{name}' does not have three rows, one for each colour")
    return names
