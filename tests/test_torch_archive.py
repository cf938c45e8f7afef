"""Files of `torch.save`: tensors come out exactly, invalid files give one error message, and no code in them runs."""

import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
from checkpoint_samples import (
    ORDERED_DICT,
    REBUILD,
    SMALL,
    Call,
    Name,
    Storage,
    WithState,
    legacy_file,
    read,
    refusal,
    storage,
    tensor,
    view,
    zip_file,
)

from models.checkpoints import published
from models.checkpoints.published import read_torch_checkpoint
from models.training.checkpoint import CheckpointError

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
    big = read(tmp_path, zip_file({"x": tensor(TWO, order=">")}, byteorder="big"))["x"]
    assert big.dtype.isnative and big.tolist() == [1.0, 1.0]


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


def test_plain_values_and_parameters_come_out_as_they_are(tmp_path):
    plain = {"a": [1, -2, 2**100, 2.5, None, True, ("x", (1, 2, 3, 4)), {}], 7: "\u03c0", "b": {}}
    parameter = Call(Name("torch._utils", "_rebuild_parameter"), (tensor(np.ones(2, np.float32)), True, {}))
    network = WithState(Call(ORDERED_DICT, ()), {"_metadata": {"": {"version": 1}}})
    raw = read(tmp_path, zip_file({**plain, "parameter": parameter, "network": network}))
    assert raw.pop("parameter").tolist() == [1, 1] and raw == {**plain, "network": {}}


HELD = storage(np.zeros(4, np.float32))
BAD_TENSORS = [
    *(view(HELD, offset, (4,), (1,)) for offset in (1, -1, True, 2**61)),
    view(HELD, 0, (5,), (-1,)),
    *(view(HELD, 0, size, (1,) * len(size)) for size in ((-4,), (1,) * 65, ("4",))),
    view(HELD, 0, (2**20, 2**20, 2**20, 2**20), (0, 0, 0, 0)),
    Call(REBUILD, (HELD,)),
    *(view(Storage("0", bytes(8), "FloatStorage", length), 0, (1,), (1,)) for length in (4, -1)),
    Call(Name("numpy", "dtype"), ("O8", False, True)),
    Call(Name("_codecs", "encode"), ("x", "rot13")),
]


def test_a_tensor_that_makes_no_sense_is_refused(tmp_path, monkeypatch):
    for number, value in enumerate(BAD_TENSORS):
        assert refusal(tmp_path, zip_file({"x": value})), number
    monkeypatch.setattr(published, "MAX_ARCHIVE_BYTES", 1 << 16)  # many views of one storage
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


CHANGED = "is damaged or truncated"
FOREIGN = "is not a file of torch.save"
TWO = np.full(2, 1.0, np.float32)
BAD_ARCHIVES = [
    (zip_file({"x": tensor(np.zeros(100000, np.float32))}, compression=zipfile.ZIP_DEFLATED), "has compressed entries"),
    (overlapping_archive(), "its entries are larger than the file"),
    (zip_file({}).replace(b"data.pkl", b"data.txt"), "not of torch.save"),
    (zip_file({"x": tensor(TWO)}).replace(b"/data/0", b"/data/1"), "it has no entry data/0"),
    (zip_file({"x": tensor(TWO)}).replace(b"\x80\x3f", b"\x80\x40"), CHANGED),
    (b"not a checkpoint\n", FOREIGN),
    (zip_file([1, 2]), "is not a dictionary"),
]


@pytest.mark.parametrize(("content", "reason"), BAD_ARCHIVES, ids=range(len(BAD_ARCHIVES)))
def test_an_archive_that_makes_no_sense_is_refused(tmp_path, content, reason):
    assert reason in refusal(tmp_path, content)


# pickles that refer to more than tensors: no code in them is executed


class Opening:
    """Pickles as a call of `eval` that makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return eval, (f"open({str(self.path)!r}, 'w').close()",)


def chain(canary):
    """getattr(__import__("os"), "system")(...): no name that looks like harm but getattr."""
    imported = Call(Name("builtins", "__import__"), ("os",))
    return Call(Call(Name("builtins", "getattr"), (imported, "system")), (f"touch {canary}",))


ATTACKS = {
    "os.system": lambda canary: Call(Name("os", "system"), (f"touch {canary}",)),
    "inside a tensor": lambda canary: Call(REBUILD, (chain(canary), 0, (), ())),
    "an attribute of an allowed module": lambda canary: Call(Name("torch._utils", "os.system"), (f"touch {canary}",)),
    "a name with a newline": lambda canary: Name("os", "system" + 1000 * "x"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_file_that_asks_for_a_foreign_name_is_refused_unrun(tmp_path, attack):
    canary = tmp_path / "canary"
    assert "nothing was executed" in refusal(tmp_path, zip_file(ATTACKS[attack](canary)))
    assert not canary.exists()


def test_what_pickle_itself_would_run_is_refused_in_every_protocol(tmp_path):
    canary = tmp_path / "canary"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        content = pickle.dumps(Opening(canary), protocol)
        assert "eval" in refusal(tmp_path, zip_file(content)) and not canary.exists()
        pickle.loads(content)
        canary.unlink()  # the sample must be able to do harm


def test_old_formats_and_sparse_files_of_terabytes_are_refused(tmp_path):
    for value in (SMALL, ATTACKS["os.system"]("canary")):
        assert "read it with torch.load, write it again with torch.save" in refusal(tmp_path, legacy_file(value))
    path = tmp_path / "ckpt_000040.pth"
    path.write_bytes(zip_file(SMALL))
    os.truncate(path, 1 << 36)
    with pytest.raises(CheckpointError, match="larger than 1024 MiB"):
        read_torch_checkpoint(path)


FORBIDDEN_OPERATIONS = {
    "INST": b"(S'x'\nios\nsystem\n.",
    "PERSID": b"Pos.system\n.",
    "a state for a function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x05\x00\x00\x00buildNsb.",
    "an append to a tuple": b"\x80\x02)Na.",
    "a memo that is not there": b"\x80\x02j\xff\xff\xff\xff.",
    "a number of a million digits": b"I" + b"9" * 1000000 + b"\n.",
}


def test_a_pickle_that_leaves_the_narrow_path_is_refused(tmp_path, monkeypatch):
    for case, content in FORBIDDEN_OPERATIONS.items():
        assert refusal(tmp_path, zip_file(content)), case
    content = zip_file(b"\x80\x02" + b"N" * 100 + b"}.")
    assert read(tmp_path, content) == {}
    monkeypatch.setattr(published, "MAX_PICKLE_BYTES", 100)
    assert "a pickle of more than" in refusal(tmp_path, content)
