"""A small checkpoint, and the comparisons and message checks of the tests of checkpoints."""

import json

import numpy as np

from data.errors import UserError
from models.checkpoints.ours import MOMENTS, Checkpoint


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
