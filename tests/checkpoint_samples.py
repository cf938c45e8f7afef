"""Checkpoints for tests, and checks of what is read: small ones of this program's format, and files of PyTorch.

The latter are what `torch.save` writes, without PyTorch, hostile files included.
"""

import io
import json
import pickle
import zipfile
from dataclasses import dataclass

import numpy as np
import pytest

from data.errors import UserError
from models.checkpoints.published import read_torch_checkpoint
from models.training.checkpoint import MOMENTS, Checkpoint, CheckpointError


def make_checkpoint(step=3, seed=0):
    rng = np.random.default_rng(seed)
    tensors = {
        "sdf_network_fine": {"lin0.weight_v": rng.normal(size=(2, 3)).astype(np.float32), "lin0.bias": np.zeros(2)},
        "variance_network_fine": {"variance": np.array(0.3, np.float32)},
    }
    names = [f"{network}.{name}" for network, named in tensors.items() for name in named]
    moments = {key: {name: np.abs(rng.normal(size=4)).astype(np.float32) for name in names} for key in MOMENTS}
    return Checkpoint(step, tensors, moments, step, {"rng": np.random.PCG64(seed).state, "seconds": 0.1})


def flatten(checkpoint):
    for group in (checkpoint.tensors, checkpoint.moments):
        for outer, named in group.items():
            for inner, array in named.items():
                yield (outer, inner), array


def assert_same(left, right):
    """Equality of types, shapes, bytes and state."""
    assert (left.step, left.adam_steps) == (right.step, right.adam_steps)
    assert json.dumps(left.state, sort_keys=True) == json.dumps(right.state, sort_keys=True)
    lefts, rights = dict(flatten(left)), dict(flatten(right))
    assert lefts.keys() == rights.keys()
    for key, array in lefts.items():
        assert (array.dtype, array.shape, array.tobytes()) == (
            rights[key].dtype,
            rights[key].shape,
            rights[key].tobytes(),
        )


def assert_one_sentence(error, *parts):
    """What every message to a user must be."""
    text = str(error)
    assert isinstance(error, UserError)
    assert "\n" not in text
    assert text.endswith(".")
    for part in parts:
        assert str(part) in text


STORAGE_NAMES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


@dataclass(frozen=True)
class Name:
    """A global: pickled as module and name, whether it exists or not."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """A function call: pickled as REDUCE."""

    function: object
    arguments: tuple


@dataclass(frozen=True)
class WithState:
    """An object that is handed a state: pickled as BUILD."""

    target: object
    state: object


@dataclass(frozen=True)
class Storage:
    """A storage; `count` and `kind` are what the pickle says of it, which need not be true."""

    key: str
    content: bytes
    kind: str
    count: int


class TorchPickler(pickle._Pickler):
    """Knows the classes above; its memo keeps equal storages apart by identity, as pickle does."""

    dispatch = dict(pickle._Pickler.dispatch)

    def __init__(self, file, protocol=2):
        super().__init__(file, protocol)
        self.storages = {}

    def persistent_id(self, thing):
        if not isinstance(thing, Storage):
            return None
        self.storages[thing.key] = thing
        return ("storage", Name("torch", thing.kind), thing.key, "cuda:0", thing.count)

    def save_name(self, thing):
        self.write(f"c{thing.module}\n{thing.name}\n".encode())

    def save_call(self, thing):
        self.save(thing.function)
        self.save(thing.arguments)
        self.write(b"R")

    def save_with_state(self, thing):
        self.save(thing.target)
        self.save(thing.state)
        self.write(b"b")

    dispatch[Name] = save_name
    dispatch[Call] = save_call
    dispatch[WithState] = save_with_state


ORDERED_DICT = Name("collections", "OrderedDict")
REBUILD = Name("torch._utils", "_rebuild_tensor_v2")


def storage(array, key="0", order="<"):
    """The storage of a C-ordered array."""
    content = array.astype(array.dtype.newbyteorder(order)).tobytes()
    return Storage(key, content, STORAGE_NAMES[array.dtype.name], array.size)


def view(of, offset, size, stride):
    """A tensor: a view of a storage, steps in elements."""
    return Call(REBUILD, (of, offset, size, stride, False, Call(ORDERED_DICT, ())))


def tensor(array, key="0", order="<"):
    """A tensor with a storage of its own."""
    steps = tuple(step // array.itemsize for step in np.ascontiguousarray(array).reshape(array.shape).strides)
    return view(storage(array, key, order), 0, array.shape, steps)


def pickled(value):
    """The pickle of a value and the storages it mentions."""
    stream = io.BytesIO()
    writer = TorchPickler(stream)
    writer.dump(value)
    return stream.getvalue(), writer.storages


def zip_file(value, byteorder=None, compression=zipfile.ZIP_STORED, **entries):
    """The zip format, for a value or for pickled bytes; further entries by name."""
    content, storages = (value, {}) if isinstance(value, bytes) else pickled(value)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr("archive/data.pkl", content)
        if byteorder:
            archive.writestr("archive/byteorder", byteorder)
        for key, held in storages.items():
            archive.writestr(f"archive/data/{key}", held.content)
        for name, extra in entries.items():
            archive.writestr(f"archive/{name}", extra)
    return stream.getvalue()


def legacy_file(value):
    """The start of a file of PyTorch before 1.6: the magic number, the protocol, the system and the value."""
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    return b"".join(pickle.dumps(part, 2) for part in (LEGACY_MAGIC, 1001, system)) + pickled(value)[0]


SMALL = {"x": tensor(np.arange(3, dtype=np.float32)), "n": {"y": [1, 2.5, "z"]}, "i": 40}


def read(tmp_path, content):
    path = tmp_path / "ckpt_000040.pth"
    path.write_bytes(content)
    return read_torch_checkpoint(path)


def refusal(tmp_path, content):
    """The one sentence with which a file is refused."""
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, content)
    text = str(caught.value)
    assert isinstance(caught.value, UserError)
    assert str(tmp_path / "ckpt_000040.pth") in text
    assert "\n" not in text
    assert len(text) < 400 + len(str(tmp_path))
    return text
