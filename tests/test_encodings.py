"""Positional encoding against its float64 statement."""

import numpy as np
import oracles
import pytest
from gradcheck import assert_grad_close, central_differences

from models.machine.backend import jt
from models.ops.network import positional_encoding, positional_encoding_vjp
from models.ops.sizes import encoding_width

POINTS = np.random.default_rng(0).uniform(-1.2, 1.2, (6, 3)).astype(np.float32)


@pytest.mark.parametrize(("width", "octaves"), [(3, 1), (4, 6)])
def test_encoding_agrees_with_the_oracle(width, octaves):
    x = np.random.default_rng(1).uniform(-1.2, 1.2, (6, width)).astype(np.float32)
    actual = positional_encoding(jt.array(x), octaves).numpy()
    assert actual.shape == (6, encoding_width(width, octaves))
    np.testing.assert_allclose(actual, oracles.encode(x.astype(np.float64), octaves), atol=2e-6)


@pytest.mark.parametrize("octaves", [1, 6])
def test_the_transposed_jacobian_is_finite_differences_of_the_oracle(octaves):
    cotangent = np.random.default_rng(2).normal(size=(6, encoding_width(3, octaves))).astype(np.float32)
    expected = central_differences(lambda x: float((oracles.encode(x, octaves) * cotangent).sum()), POINTS)
    actual = positional_encoding_vjp(jt.array(POINTS), jt.array(cotangent), octaves).numpy()
    assert_grad_close(actual.ravel(), expected, rtol=1e-5)
    x = jt.array(POINTS)
    taped = jt.grad((positional_encoding(x, octaves) * jt.array(cotangent)).sum(), x).numpy()
    assert_grad_close(actual, taped, rtol=1e-5)


def test_the_transposed_jacobian_is_differentiable_again():
    cotangent = np.random.default_rng(4).normal(size=(6, 9)).astype(np.float32)

    def energy(x):
        total = cotangent[:, :3] + cotangent[:, 3:6] * np.cos(x) - cotangent[:, 6:] * np.sin(x)
        return float((total**2).sum())

    x = jt.array(POINTS)
    actual = jt.grad(positional_encoding_vjp(x, jt.array(cotangent), 1).sqr().sum(), x).numpy()
    assert_grad_close(actual.ravel(), central_differences(energy, POINTS), rtol=1e-5)
