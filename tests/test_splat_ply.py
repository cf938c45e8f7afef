"""Splats as the .ply of Gaussian viewers: written, read back, turned with the frame, and never trusted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from splat_oracle import random_splats

from models.checkpoints.ours import CheckpointError
from models.checkpoints.splat_ply import encode, to_checkpoint
from models.methods.gaussians.conf import SplatsConfig
from models.ops.harmonics import functions, turning

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
        expected = (
            splats[name] / np.sign((splats[name] * array).sum(axis=1, keepdims=True))
            if name == "quats"
            else splats[name]
        )
        np.testing.assert_allclose(array, expected, atol=2e-5, err_msg=name)
    assert found.step == 5 and found.buffers["pull"].shape == (7,)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_colours_turn_with_the_frame(degree):
    rng = np.random.default_rng(3)
    turn, d = Rotation.random(random_state=4).as_matrix(), rng.normal(size=(50, 3))
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    c = rng.normal(size=((degree + 1) ** 2, 3))
    before = np.concatenate(functions(degree, d), axis=1) @ c
    after = np.concatenate(functions(degree, d @ turn.T), axis=1) @ turning(degree, turn) @ c
    np.testing.assert_allclose(before, after, atol=1e-12)


def damaged(content, name):
    """A file with something wrong in it."""
    count = content.index(b"end_header\n") + 11
    numbers = np.frombuffer(content[count:], "<f4").reshape(3, -1).copy()
    header = content[:count]
    if name == "missing":
        header = header.replace(b"property float opacity\n", b"property float transparency\n")
    elif name == "NaN":
        numbers[1, 2] = np.nan
    elif name == "infinite":
        numbers[1, PUBLISHED.index("scale_1")] = np.inf
    elif name == "claims":
        header = header.replace(b"vertex 3", b"vertex 1000000000")
    elif name == "short":
        return content[:-5]
    elif name == "text":
        header = header.replace(b"binary_little_endian", b"ascii")
    elif name == "list":
        header = header.replace(b"property float nx", b"property list uchar int nx")
    elif name == "twice":
        header = header.replace(b"property float nx", b"property float x")
    elif name == "none":
        return header.replace(b"vertex 3", b"vertex 0")
    elif name == "endless header":
        return header.replace(b"end_header\n", b"comment x\n" * 10000)
    elif name == "harmonics":
        header = header.replace(b"f_rest_44", b"f_extra")
    elif name == "no ply":
        return b"hello"
    elif name == "empty":
        return b""
    return header + numbers.tobytes()


WORDS = {
    "missing": "no property opacity",
    "NaN": "z of Gaussian 1 is nan",
    "infinite": "scale_1 of Gaussian 1 is inf",
    "claims": "1000000000",
    "short": "damaged",
    "text": "binary",
    "list": "without list properties",
    "twice": "twice",
    "none": "no Gaussians",
    "endless header": "not a .ply of Gaussians",
    "harmonics": "44 properties f_rest",
    "no ply": "not a .ply of Gaussians",
    "empty": "not a .ply of Gaussians",
}


@pytest.mark.parametrize("name", WORDS)
def test_a_file_that_cannot_be_used_is_one_sentence(name, tmp_path):
    path = tmp_path / "bad.ply"
    path.write_bytes(damaged(encode(random_splats(3, seed=5), FRAME, False), name))
    with pytest.raises(CheckpointError, match=WORDS[name]) as error:
        to_checkpoint(path, SplatsConfig(), FRAME, 1)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_missing_file_and_colours_beyond_the_conf_are_told(tmp_path):
    with pytest.raises(CheckpointError, match="There is no file"):
        to_checkpoint(tmp_path / "none.ply", SplatsConfig(), FRAME, 1)
    path = tmp_path / "a.ply"
    path.write_bytes(encode(random_splats(3, seed=6), FRAME, False))
    with pytest.raises(CheckpointError, match="set it to 3"):
        to_checkpoint(path, SplatsConfig(degree=1), FRAME, 1)
