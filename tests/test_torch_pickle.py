"""Hostile pickles: a file that refers to more than tensors is rejected, and no code in it is executed."""

import contextlib
import pickle
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_files import (
    ORDERED_DICT,
    REBUILD,
    SMALL,
    Call,
    Name,
    WithState,
    legacy_file,
    pickled,
    read,
    refusal,
    zip_file,
)

from models.checkpoints import torch_pickle
from models.checkpoints.ours import CheckpointError


class Reduced:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.parts = (function, arguments)

    def __reduce__(self):
        return self.parts


def chain(canary):
    """getattr(__import__("os"), "system")(...): no name that looks like harm but getattr."""
    imported = Call(Name("builtins", "__import__"), ("os",))
    return Call(Call(Name("builtins", "getattr"), (imported, "system")), (f"touch {canary}",))


ATTACKS = {
    "os.system": lambda canary: Call(Name("os", "system"), (f"touch {canary}",)),
    "builtins.eval": lambda canary: Call(Name("builtins", "eval"), (f"open({str(canary)!r}, 'w')",)),
    "python 2 spelling": lambda canary: Call(Name("__builtin__", "eval"), (f"open({str(canary)!r}, 'w')",)),
    "nested in a state dict": lambda canary: {"nerf": {"w": [Call(ORDERED_DICT, ()), (chain(canary),)]}},
    "inside a tensor": lambda canary: Call(REBUILD, (chain(canary), 0, (), ())),
    "as a state": lambda canary: WithState(Call(ORDERED_DICT, ()), chain(canary)),
    "a dotted name": lambda canary: Call(Name("collections", "OrderedDict.fromkeys"), ([],)),
    "an attribute of an allowed module": lambda canary: Call(Name("torch._utils", "os.system"), (f"touch {canary}",)),
    "numpy's loader": lambda canary: Call(Name("numpy", "load"), (str(canary), None, True)),
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
        content = pickle.dumps(Reduced(eval, f"open({str(canary)!r}, 'w').close()"), protocol)
        assert "eval" in refusal(tmp_path, zip_file(content)) and not canary.exists()
        pickle.loads(content)
        canary.unlink()  # the sample must be able to do harm


@pytest.mark.parametrize("value", [SMALL, ATTACKS["os.system"]("canary")])
def test_the_format_before_pytorch_1_6_is_refused_with_the_way_out(tmp_path, value):
    assert "read it with torch.load, write it again with torch.save" in refusal(tmp_path, legacy_file(value))


FORBIDDEN_OPERATIONS = {
    "INST": b"(S'x'\nios\nsystem\n.",
    "NEWOBJ": b"\x80\x02ccollections\nOrderedDict\n)\x81.",
    "PERSID": b"Pos.system\n.",
    "a state for a function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x05\x00\x00\x00buildNsb.",
    "a call of a dictionary": b"\x80\x02})R.",
    "wrong arguments": b"\x80\x02ccollections\nOrderedDict\nK\x01\x85R.",
    "an append to a tuple": b"\x80\x02)Na.",
    "a tuple as a key": b"\x80\x02})Ns.",
    "an enormous integer as a key": b"\x80\x02}\x8a\x20" + b"\x7f" * 32 + b"Ns.",
    "an empty stack": b"\x80\x02.",
    "a memo that is not there": b"\x80\x02j\xff\xff\xff\xff.",
    "2^62 bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"x.",
    "a frame beyond the end": b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"}",
    "a set": b"\x80\x04\x8f.",
    "a key of tuples by the memo": b"\x80\x02})" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(200)) + b"Ns.",
    "an unknown operation": b"\x80\x02\xff.",
    "bad text": b"\x80\x02X\x01\x00\x00\x00\xff.",
    "a number of a million digits": b"I" + b"9" * 1000000 + b"\n.",
}


def test_a_pickle_that_leaves_the_narrow_path_is_refused(tmp_path, monkeypatch):
    for case, content in FORBIDDEN_OPERATIONS.items():
        assert refusal(tmp_path, zip_file(content)), case
    assert read(tmp_path, zip_file(b"\x80\x02}r\xff\xff\xff\xff.")) == {}  # a memo index costs no memory
    doubling = b"\x80\x02}X\x01\x00\x00\x00a)" + b"2\x86" * 1000 + b"s."
    assert "DUP" in refusal(tmp_path, zip_file(doubling))
    content = zip_file(b"\x80\x02" + b"N" * 100 + b"}.")
    assert read(tmp_path, content) == {}
    monkeypatch.setattr(torch_pickle, "MAX_PICKLE_BYTES", 100)
    assert "a pickle of more than" in refusal(tmp_path, content)


@given(edits=st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_rewritten_pickle_ends_in_a_value_or_a_refusal(tmp_path, edits):
    content, storages = pickled(SMALL)
    for position, replacement in edits:
        position %= len(content)
        content = content[:position] + replacement + content[position + 1 :]
    with contextlib.suppress(CheckpointError):
        read(tmp_path, zip_file(content, **{"data/0": storages["0"].content}))
