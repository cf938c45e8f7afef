"""Theorems about the files of `torch.save`: tensors come out exactly, and invalid files give one error message.

The reader was also held against PyTorch 2.13 itself; these tests need none.
"""

import contextlib
import os
import struct
import zipfile

import numpy as np
import pytest
from torch_files import (
    ORDERED_DICT,
    REBUILD,
    SMALL,
    Call,
    Name,
    Storage,
    WithState,
    pickled,
    read,
    refusal,
    storage,
    tensor,
    view,
    zip_file,
)

from models.checkpoints import torch_archive
from models.checkpoints.ours import CheckpointError
from models.checkpoints.published import read_torch_checkpoint

ARRAYS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.array(0.3, np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "double": np.array([np.pi, -0.0, np.inf, np.nan]),
    "half": np.array([1.5, 2.5], np.float16),
    "bool": np.array([True, False]),
} | {
    kind.__name__: np.array([np.iinfo(kind).min, 7], kind) for kind in (np.int64, np.int32, np.int16, np.int8, np.uint8)
}


def test_tensors_of_every_type_come_out_bit_for_bit(tmp_path):
    raw = read(tmp_path, zip_file({name: tensor(array, name) for name, array in ARRAYS.items()}))
    for name, array in ARRAYS.items():
        assert (raw[name].dtype, raw[name].shape, raw[name].tobytes()) == (array.dtype, array.shape, array.tobytes())
        raw[name][...] = 0  # its own memory, not the file's
    array = np.array([1.0, 2.0], np.float32)
    raw = read(tmp_path, zip_file({"x": tensor(array, order=">")}, byteorder="big"))
    np.testing.assert_array_equal(raw["x"], array)
    assert raw["x"].dtype.isnative


def test_views_of_a_storage_come_out_as_numpy_would_stride_them(tmp_path):
    values = np.arange(20, dtype=np.float32)
    held = storage(values)
    views = [
        (view(held, 0, (4, 5), (1, 4)), values.reshape(5, 4).T),
        (view(held, 6, (2, 2), (8, 2)), np.array([[6, 8], [14, 16]])),
        (view(held, 3, (2, 3), (0, 1)), np.array([[3, 4, 5], [3, 4, 5]])),
        (view(held, 19, (), ()), np.array(19)),
        (view(held, 20, (0,), (1,)), np.zeros(0)),
    ]
    raw = read(tmp_path, zip_file({"all": [pair[0] for pair in views]}))["all"]
    for found, (_, expected) in zip(raw, views, strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.flags.c_contiguous


def test_bfloat16_becomes_the_float32_it_is_the_upper_half_of(tmp_path):
    values = np.array([[1.0, -2.5], [3.0e38, 0.0]], np.float32)  # 3e38 is cut, the others are exact
    halves = (values.view(np.uint32) >> 16).astype("<u2")
    held = Storage("0", halves.tobytes(), "BFloat16Storage", 4)
    raw = read(tmp_path, zip_file({"all": view(held, 0, (2, 2), (1, 2)), "one": view(held, 1, (), ())}))
    np.testing.assert_array_equal(raw["all"], (halves.astype(np.uint32) << 16).view(np.float32).T)
    assert (raw["one"].dtype, raw["one"].shape, float(raw["one"])) == (np.float32, (), -2.5)


def test_plain_values_and_parameters_come_out_as_they_are(tmp_path):
    plain = {"a": [1, -2, 2**100, 2.5, None, True, ("x", (1, 2, 3, 4)), {}], 7: "\u03c0", "b": {}}
    parameter = Call(Name("torch._utils", "_rebuild_parameter"), (tensor(np.ones(2, np.float32)), True, {}))
    network = WithState(Call(ORDERED_DICT, ()), {"_metadata": {"": {"version": 1}}})
    raw = read(tmp_path, zip_file({**plain, "parameter": parameter, "network": network}))
    np.testing.assert_array_equal(raw.pop("parameter"), [1, 1])
    assert raw == {**plain, "network": {}}


HELD = storage(np.zeros(4, np.float32))
BAD_TENSORS = {
    "one beyond the end": view(HELD, 1, (4,), (1,)),
    "a stride that overflows": view(HELD, 0, (5,), (2**62,)),
    "a huge offset": view(HELD, 2**61, (1,), (1,)),
    "a negative offset": view(HELD, -1, (1,), (1,)),
    "a negative stride": view(HELD, 3, (4,), (-1,)),
    "a negative size": view(HELD, 0, (-4,), (1,)),
    "sizes that unfold": view(HELD, 0, (2**20, 2**20, 2**20, 2**20), (0, 0, 0, 0)),
    "many dimensions": view(HELD, 0, (1,) * 65, (1,) * 65),
    "no stride": view(HELD, 0, (4,), ()),
    "text for a size": view(HELD, 0, ("4",), (1,)),
    "a truth value for an offset": view(HELD, True, (1,), (1,)),
    "no storage": view(None, 0, (4,), (1,)),
    "too few parts": Call(REBUILD, (HELD,)),
    "a storage shorter than it says": view(Storage("0", bytes(8), "FloatStorage", 4), 0, (4,), (1,)),
    "a storage of negative length": view(Storage("0", bytes(8), "FloatStorage", -1), 0, (1,), (1,)),
    "a storage of complex numbers": view(Storage("0", bytes(8), "ComplexFloatStorage", 1), 0, (1,), (1,)),
    "a NumPy number of objects": Call(Name("numpy", "dtype"), ("O8", False, True)),
    "a NumPy number that is too long": Call(
        Name("numpy._core.multiarray", "scalar"),
        (Call(Name("numpy", "dtype"), ("f4",)), Call(Name("_codecs", "encode"), ("12345678", "latin1"))),
    ),
    "another encoding": Call(Name("_codecs", "encode"), ("x", "rot13")),
    "long bytes": Call(Name("_codecs", "encode"), ("x" * 9, "latin1")),
}


def test_a_tensor_that_makes_no_sense_is_refused(tmp_path, monkeypatch):
    for case, value in BAD_TENSORS.items():
        assert refusal(tmp_path, zip_file({"x": value})), case
    monkeypatch.setattr(torch_archive, "MAX_BYTES", 1 << 16)  # many views of one storage
    views = [view(storage(np.zeros(1000, np.float32)), 0, (1000,), (1,))] * 17
    assert len(read(tmp_path, zip_file({"x": views[:16]}))["x"]) == 16
    assert "expand" in refusal(tmp_path, zip_file({"x": views}))


def overlapping_archive():
    """One entry listed three times: unpacked larger than the file."""
    content = zip_file({"x": tensor(np.zeros(4000, np.float32))})
    end = content.index(b"PK\x05\x06")
    count, _, size, start = struct.unpack_from("<HHII", content, end + 8)
    tail = struct.pack("<HHII", 3 * count, 3 * count, 3 * size, start)
    return content[:start] + 3 * content[start:end] + content[end : end + 8] + tail + content[end + 20 :]


def encrypted_archive():
    content = bytearray(zip_file({"x": 1}))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    content[6] |= 1
    return bytes(content)


CHANGED = "is damaged or truncated"
FOREIGN = "is not a file of torch.save"
TWO = np.full(2, 1.0, np.float32)
BAD_ARCHIVES = [
    (zip_file({"x": tensor(np.zeros(100000, np.float32))}, compression=zipfile.ZIP_DEFLATED), "has compressed entries"),
    (overlapping_archive(), "its entries are larger than the file"),
    (encrypted_archive(), CHANGED),
    (zip_file({}).replace(b"data.pkl", b"data.txt"), "not of torch.save"),
    (zip_file({}, **{"xy/data.pkl": b"}."}).replace(b"archive/xy/", b"archive-xy/"), "not of torch.save"),
    (zip_file({"x": tensor(TWO)}).replace(b"/data/0", b"/data/1"), "it has no entry data/0"),
    (zip_file({"x": tensor(TWO)}).replace(b"\x80\x3f", b"\x80\x40"), CHANGED),
    (b"PK\x03\x04" + bytes(50), CHANGED),
    (b"", FOREIGN),
    (b"not a checkpoint\n", FOREIGN),
    (pickled({"nerf": 1})[0], FOREIGN),
    (zip_file([1, 2]), "is not a dictionary"),
]


@pytest.mark.parametrize(("content", "reason"), BAD_ARCHIVES, ids=range(len(BAD_ARCHIVES)))
def test_an_archive_that_makes_no_sense_is_refused(tmp_path, content, reason):
    assert reason in refusal(tmp_path, content)


def test_a_sparse_file_of_terabytes_is_refused_unread(tmp_path):
    path = tmp_path / "ckpt_000040.pth"
    path.write_bytes(zip_file(SMALL))
    os.truncate(path, 1 << 36)
    with pytest.raises(CheckpointError, match="larger than 1024 MiB"):
        read_torch_checkpoint(path)


def test_truncations_are_refused_and_flipped_bits_harmless(tmp_path):
    content = zip_file(SMALL)
    for position in range(len(content)):
        refusal(tmp_path, content[:position])
        for bit in (1, 128):
            with contextlib.suppress(CheckpointError):
                read(tmp_path, content[:position] + bytes([content[position] ^ bit]) + content[position + 1 :])
