"""Splats as the .ply of Gaussian viewers: written, read back, turned with the frame, and never trusted."""

from __future__ import annotations

import numpy as np
import pytest
from method_oracles import random_splats
from scipy.spatial.transform import Rotation

from models.checkpoints.splat_ply import encode, to_checkpoint
from models.methods.gaussians.conf import SplatsConfig
from models.ops.gaussians.harmonics import functions, turning
from models.training.checkpoint import CheckpointError

PUBLISHED = ["x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2", *(f"f_rest_{k}" for k in range(45))]
PUBLISHED += ["opacity", "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"]
FRAME = np.eye(4)
FRAME[:3, :3] = 2.5 * Rotation.from_euler("xyz", [0.3, -0.8, 1.9]).as_matrix()
FRAME[:3, 3] = [1.0, -2.0, 3.0]


def test_what_is_written_is_read_back(tmp_path):
    splats, path = random_splats(7, seed=1), tmp_path / "a.ply"
    path.write_bytes(encode(splats, FRAME, False))
    found = to_checkpoint(path, SplatsConfig(), FRAME, 5)
    for name, array in found.tensors["splats"].items():
        sign = np.sign((splats[name] * array).sum(axis=1, keepdims=True)) if name == "quats" else 1
        np.testing.assert_allclose(array, splats[name] * sign, atol=2e-5, err_msg=name)
    assert found.step == 5 and found.tensors["splats"]["means"].shape == (7, 3)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_colours_turn_with_the_frame(degree):
    rng = np.random.default_rng(3)
    turn, d = Rotation.random(random_state=4).as_matrix(), rng.normal(size=(50, 3))
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    c = rng.normal(size=((degree + 1) ** 2, 3))
    before = np.concatenate(functions(degree, d), axis=1) @ c
    after = np.concatenate(functions(degree, d @ turn.T), axis=1) @ turning(degree, turn) @ c
    np.testing.assert_allclose(before, after, atol=1e-12)


COUNT = 11  # of the bytes of the last line of a header
GOOD = encode(random_splats(3, seed=5), FRAME, False)


def number(row, name, value):
    """The file with one of its numbers replaced."""
    count = GOOD.index(b"end_header\n") + COUNT
    numbers = np.frombuffer(GOOD[count:], "<f4").reshape(3, -1).copy()
    numbers[row, PUBLISHED.index(name)] = value
    return GOOD[:count] + numbers.tobytes()


BAD = [
    (GOOD.replace(b"property float opacity\n", b"property float transparency\n"), "no property opacity"),
    (number(1, "z", np.nan), "z of Gaussian 1 is nan"),
    (GOOD.replace(b"vertex 3", b"vertex 1000000000"), "length"),
    (GOOD[:-5], "length"),
    (GOOD[: GOOD.index(b"end_header\n") + COUNT].replace(b"vertex 3", b"vertex 0"), "no Gaussians"),
    (GOOD.replace(b"f_rest_44", b"f_extra"), "44 properties f_rest"),
    (b"hello", "cannot be read as a .ply of Gaussians"),
]


@pytest.mark.parametrize(("content", "told"), BAD, ids=range(len(BAD)))
def test_a_file_that_cannot_be_used_is_one_sentence(content, told, tmp_path):
    path = tmp_path / "bad.ply"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=told) as error:
        to_checkpoint(path, SplatsConfig(), FRAME, 1)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_missing_file_and_colours_beyond_the_conf_are_told(tmp_path):
    (tmp_path / "a.ply").write_bytes(GOOD)
    for name, told in (("none.ply", "There is no file"), ("a.ply", "set it to 3")):
        with pytest.raises(CheckpointError, match=told):
            to_checkpoint(tmp_path / name, SplatsConfig(degree=1), FRAME, 1)
