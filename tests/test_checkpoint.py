"""Theorems about our checkpoints: what is saved is loaded, bit for bit, and damage never goes unnoticed."""

import errno
import os
import resource
import struct
import sys

import numpy as np
import pytest
from checkpoint_samples import assert_one_sentence, assert_same, make_checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save

from models.checkpoints import ours as module
from models.checkpoints.ours import (
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
)

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


def test_strided_and_big_endian_arrays_keep_their_values(tmp_path):
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    arrays = {
        "transposed": table.T,
        "reversed": table[::-1, ::2],
        "big": table.astype(">f4"),
        "fortran": np.array(table, order="F"),
    }
    loaded = load_checkpoint(save_checkpoint(tmp_path, Checkpoint(1, {"net": arrays}, {}, 1)))
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded.tensors["net"][name], array)


def test_every_flipped_bit_is_noticed_or_harmless(tmp_path):
    saved = Checkpoint(
        3, {"net": {"w": np.arange(3, dtype=np.float32)}}, {"exp_avg": {"net.w": np.ones(3)}}, 3, {"a": 1}
    )
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


def with_metadata(**metadata):
    return save({"network/net/w": np.zeros(2)}, metadata=metadata)


def with_header(text):
    return struct.pack("<Q", len(text)) + text.encode()


BAD_FILES = {
    "empty": (b"", "damaged"),
    "text": (b"some text that is no checkpoint at all", "damaged"),
    "zip": (b"PK\x03\x04" + bytes(100), "damaged"),
    "malformed header": (with_header('{"__metadata__": {'), "damaged"),
    "huge header": (struct.pack("<Q", 2**63) + b"{}", "damaged"),
    "safetensors of another program": (save({"w": np.zeros(2)}), "is not a checkpoint of this program"),
    "another format": (with_metadata(format="other"), "is not a checkpoint of this program"),
    "newer schema": (with_metadata(format="neus-jittor", schema="4"), "newer version"),
    "schema zero": (with_metadata(format="neus-jittor", schema="0"), "damaged"),
    "schema in words": (with_metadata(format="neus-jittor", schema="two"), "damaged"),
    "no schema": (with_metadata(format="neus-jittor"), "damaged"),
    "no digest": (with_metadata(format="neus-jittor", schema="1", step="1", adam_steps="1", state="{}"), "damaged"),
    "wrong digest": (
        with_metadata(format="neus-jittor", schema="1", step="1", adam_steps="1", state="{}", sha256="0"),
        "damaged",
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_that_is_no_checkpoint_is_one_clear_sentence(tmp_path, case):
    content, reason = BAD_FILES[case]
    path = tmp_path / "ckpt_000001.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    assert_one_sentence(caught.value, path, reason)


@pytest.mark.parametrize("state", ["{", "[" * 100000, '{"a": }'])
def test_a_malformed_state_is_one_clear_sentence_even_under_a_valid_digest(tmp_path, state):
    metadata = {"format": "neus-jittor", "schema": "1", "step": "1", "adam_steps": "1", "state": state}
    path = tmp_path / "ckpt_000001.safetensors"
    path.write_bytes(save({}, metadata={**metadata, "sha256": module.digest_of({}, metadata)}))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    assert_one_sentence(caught.value, path)


@pytest.mark.parametrize("step_that_fails", ["fsync", "replace"])
def test_a_failed_write_changes_no_file_and_leaves_none_behind(tmp_path, monkeypatch, step_that_fails):
    def no_space(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = save_checkpoint(tmp_path, make_checkpoint(seed=0))
    content = path.read_bytes()
    monkeypatch.setattr(os, step_that_fails, no_space)
    with pytest.raises(CheckpointError) as caught:
        save_checkpoint(tmp_path, make_checkpoint(seed=1))
    assert_one_sentence(caught.value, path, "No space left on device")
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_bytes() == content


@pytest.mark.skipif(sys.platform == "win32", reason="has no file size limit")
def test_a_disk_that_fills_up_while_writing_changes_no_file(tmp_path):
    path = save_checkpoint(tmp_path, make_checkpoint(seed=0))
    content = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(content) // 2, limits[1]))
    try:
        with pytest.raises(CheckpointError) as caught:
            save_checkpoint(tmp_path, make_checkpoint(seed=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_one_sentence(caught.value, path)
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_bytes() == content


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    path = save_checkpoint(tmp_path, make_checkpoint(seed=0))
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, make_checkpoint(seed=1))
    assert os.listdir(tmp_path) == [path.name]
    assert_same(load_checkpoint(path), make_checkpoint(seed=0))


def test_the_content_is_on_the_disk_before_it_gets_its_name_and_the_name_after(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("replace"), replace(*paths)))
    save_checkpoint(tmp_path, make_checkpoint())
    assert calls == ["fsync", "replace", "fsync"]
