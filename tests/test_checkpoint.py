"""Theorems about our checkpoints: what is saved is loaded, bit for bit, and damage never goes unnoticed."""

import errno
import os
import struct
from unittest.mock import Mock

import numpy as np
import pytest
from checkpoint_samples import assert_one_sentence, assert_same, make_checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save

from models.checkpoints import ours as module
from models.checkpoints.ours import load_checkpoint, save_checkpoint
from models.training.checkpoint import Checkpoint, CheckpointError

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
ARRAYS = st.sampled_from(["f4", "f8", "f2"]).flatmap(lambda code: hnp.arrays(np.dtype(code), SHAPES))
MOMENTS = hnp.arrays(np.float32, SHAPES, elements=st.floats(allow_nan=False, allow_infinity=False, width=32))
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8)
STATES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**130), 2**130) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(
    tensors=st.dictionaries(NAMES, st.dictionaries(NAMES, ARRAYS, min_size=1, max_size=3), max_size=3),
    moment=st.dictionaries(NAMES, MOMENTS, max_size=3),
    state=st.dictionaries(st.text(max_size=5), STATES, max_size=3),
    step=st.integers(0, 10**9),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_loading_what_was_saved_gives_the_same_bits(tmp_path, tensors, moment, state, step):
    saved = Checkpoint(step, tensors, {"exp_avg": moment, "exp_avg_sq": {}}, step + 1, state)
    assert_same(load_checkpoint(save_checkpoint(tmp_path, saved)), saved)


def test_every_flipped_bit_is_noticed_or_harmless(tmp_path):
    moments = {"exp_avg": {"net.w": np.ones(3)}}
    saved = Checkpoint(3, {"net": {"w": np.arange(3, dtype=np.float32)}}, moments, 3, {"a": 1})
    path = save_checkpoint(tmp_path, saved)
    content = path.read_bytes()
    noticed = 0
    for position in range(len(content)):
        for bit in (1, 16):
            path.write_bytes(content[:position] + bytes([content[position] ^ bit]) + content[position + 1 :])
            try:
                assert_same(load_checkpoint(path), saved)
            except CheckpointError as error:
                assert_one_sentence(error, path)
                noticed += 1
    assert noticed > 1.9 * len(content)


def test_every_truncation_is_noticed(tmp_path):
    path = save_checkpoint(tmp_path, make_checkpoint())
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError) as caught:
            load_checkpoint(path)
        assert_one_sentence(caught.value, path)


def ours(**metadata):
    return save({"network/net/w": np.zeros(2)}, metadata={"format": "neus-jittor", **metadata})


def with_state(state):
    """A file with a valid digest."""
    metadata = {"format": "neus-jittor", "schema": "1", "step": "1", "adam_steps": "1", "state": state}
    return save({}, metadata={**metadata, "sha256": module.digest_of({}, metadata)})


WHOLE = {"schema": "1", "step": "1", "adam_steps": "1", "state": "{}"}
BAD_FILES = {
    "empty": (b"", "damaged"),
    "malformed header": (struct.pack("<Q", 18) + b'{"__metadata__": {', "damaged"),
    "safetensors of another program": (save({"w": np.zeros(2)}), "is not a checkpoint of this program"),
    "newer schema": (ours(schema="4"), "newer version"),
    "schema in words": (ours(schema="two"), "damaged"),
    "wrong digest": (ours(**WHOLE, sha256="0"), "damaged"),
    "malformed state": (with_state('{"a": }'), ""),
}


@pytest.mark.parametrize(("content", "reason"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_is_no_checkpoint_is_one_clear_sentence(tmp_path, content, reason):
    path = tmp_path / "ckpt_000001.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    assert_one_sentence(caught.value, path, reason)


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_changes_no_file_and_leaves_none_behind(tmp_path, monkeypatch, function):
    path = save_checkpoint(tmp_path, make_checkpoint(seed=0))
    content = path.read_bytes()
    for error, raised in (
        (OSError(errno.ENOSPC, "No space left on device"), CheckpointError),
        (KeyboardInterrupt,) * 2,
    ):
        monkeypatch.setattr(os, function, Mock(side_effect=error))
        with pytest.raises(raised) as caught:
            save_checkpoint(tmp_path, make_checkpoint(seed=1))
        if raised is CheckpointError:
            assert_one_sentence(caught.value, path, "No space left on device")
    assert os.listdir(tmp_path) == [path.name] and path.read_bytes() == content


def test_the_content_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("replace"), replace(*paths)))
    save_checkpoint(tmp_path, make_checkpoint())
    assert calls == ["fsync", "replace", "fsync"]
