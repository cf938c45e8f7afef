"""Splats as .spz: decoded from the bytes by the published format, and read by the library's own reader."""

from __future__ import annotations

import gzip
import importlib.util
import struct

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from splat_oracle import random_splats

from models.checkpoints.splat_records import Y_DOWN
from models.checkpoints.splat_spz import FROM_Y_DOWN, SpzError, encode_spz, fraction_bits

FRAME = np.eye(4)
FRAME[:3, :3] = 2.5 * Rotation.from_euler("xyz", [0.3, -0.8, 1.9]).as_matrix()
FRAME[:3, 3] = [1.0, -2.0, 3.0]


def smallest_three(word: int) -> np.ndarray:
    """(x, y, z, w) from the 32 bits of a rotation: the index of the largest, then ten bits for each of the others."""
    largest, values = word >> 30, np.zeros(4)
    for axis in reversed([axis for axis in range(4) if axis != largest]):
        values[axis] = (-1.0 if word & 512 else 1.0) * (word & 511) / 511 / np.sqrt(2)
        word >>= 10
    values[largest] = np.sqrt(1.0 - np.sum(values**2))
    return values


@pytest.fixture
def written():
    """Splats and the bytes of their file."""
    pytest.importorskip("gsply", reason="gsply is not installed: requirements-splats.txt")
    splats = random_splats(7, seed=1)
    return splats, encode_spz(splats, FRAME, False)


def test_the_bytes_hold_place_size_colour_and_turn(written):
    splats, content = written
    raw, count = gzip.decompress(content), 7
    magic, version, points, degree, fraction, flags, reserved = struct.unpack_from("<4sIIBBBB", raw)
    assert (magic, version, points, degree, flags, reserved) == (b"NGSP", 3, count, 3, 0, 0)
    assert len(raw) == 16 + count * (9 + 1 + 3 + 3 + 4 + 45)
    parts = np.split(np.frombuffer(raw, np.uint8, offset=16), np.cumsum([9 * count, count, 3 * count, 3 * count, 28]))
    places = [int.from_bytes(bytes(row), "little", signed=True) / 2**fraction for row in parts[0].reshape(-1, 3)]
    expected = splats["means"] @ FRAME[:3, :3].T + FRAME[:3, 3]
    np.testing.assert_allclose(np.reshape(places, (-1, 3)), expected, atol=2.0**-fraction)
    opacity = 255 / (1 + np.exp(-splats["opacities"].reshape(-1)))
    np.testing.assert_allclose(parts[1], opacity, atol=0.51)
    np.testing.assert_allclose(parts[2].reshape(-1, 3), 255 * (0.5 + 0.15 * splats["dc"]).clip(0, 1), atol=0.51)
    deviations = np.log(2.5) + splats["sizes"]
    np.testing.assert_allclose(parts[3].reshape(-1, 3) / 16.0 - 10.0, deviations, atol=0.032)
    for word, own in zip(parts[4].view("<u4"), splats["quats"], strict=True):
        turned = FRAME[:3, :3] / 2.5 @ Rotation.from_quat(own[[1, 2, 3, 0]]).as_matrix()
        np.testing.assert_allclose(Rotation.from_quat(smallest_three(int(word))).as_matrix(), turned, atol=0.01)


def test_the_reader_of_the_library_gives_the_colours_of_each_direction(written, tmp_path):
    import gsply

    from models.ops.harmonics import functions

    splats, content = written
    path = tmp_path / "a.spz"
    path.write_bytes(content)
    found = gsply.read_spz(path)
    directions = np.random.default_rng(2).normal(size=(20, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    turned = directions @ FRAME[:3, :3].T / 2.5
    for index in range(len(splats["means"])):
        own = np.concatenate([splats["dc"][index][None], splats["rest"][index]])
        read = np.concatenate([found.sh0[index][None], found.shN[index]])
        before = np.concatenate(functions(3, directions), axis=1) @ own
        after = np.concatenate(functions(3, turned), axis=1) @ read
        assert np.abs(own[1:]).max() < 1  # within the range of the format
        np.testing.assert_allclose(after, before, atol=0.02)


def test_what_is_up_in_the_scene_is_y_in_the_file():
    up = np.array([0.0, 0.0, 1.0, 0.0])
    assert (FROM_Y_DOWN @ Y_DOWN @ up).tolist() == [0, 1, 0, 0]
    assert np.linalg.det(FROM_Y_DOWN[:3, :3]) == pytest.approx(1)


@pytest.mark.parametrize(("largest", "bits"), [(0.3, 24), (1.9, 22), (4.0, 20), (2047.0, 12), (1e6, 3), (1e7, -1)])
def test_coordinates_use_all_bits(largest, bits):
    assert fraction_bits(largest) == bits and largest * 2.0**bits < 2**23


def test_a_world_that_is_too_large_is_one_sentence(written):
    splats, _ = written
    with pytest.raises(SpzError, match=r"coordinates exceed the range of \.spz: shift the cameras"):
        encode_spz(splats, 1e8 * FRAME, False)


def test_without_the_library_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SpzError, match=r"^\.spz needs gsply: run `pip install -r requirements-splats\.txt`$"):
        encode_spz(random_splats(2, seed=1), FRAME, False)
