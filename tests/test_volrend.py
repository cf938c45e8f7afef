"""Volume rendering: opacity, weights, sums, and the element-wise operations they stand on."""

import numpy as np
import oracles
import pytest
from dense_renderer import dense_weights
from forms import OWN_FORMS, in_form
from gradcheck import assert_grad_close, central_differences

from models.machine.backend import jt
from models.ops import volrend
from models.ops.elementwise import hard_clip, length, magnitude, softplus
from models.ops.volrend import exclusive_cumprod

RNG = np.random.default_rng(0)
ALPHA = RNG.random((4, 9)).astype(np.float32)


def float_rows(*rows):
    return np.array(rows, np.float32)


def value(function, *arrays):
    return function(*map(jt.array, arrays)).numpy()


def gradient(function, array, cotangent=None):
    x = jt.array(array)
    y = function(x)
    y = y if cotangent is None else y * jt.array(cotangent)
    return jt.grad(y.sum(), x).numpy()


@pytest.fixture(params=OWN_FORMS)
def form(request):
    with in_form(request.param):
        yield


all_forms = pytest.mark.usefixtures("form")

FACTORS = float_rows([0.5, 0.0, 0.9, 0.3, 2.0], [0.0, 0.0, 1.0, 1.0, 1.0], [1.0, -2.0, 3.0, -4.0, 0.7])


def exclusive_products(factors):
    return np.array([[np.prod(row[:i]) for i in range(len(row))] for row in factors])


def test_exclusive_products_and_their_gradient_agree_with_numpy():
    expected = exclusive_products(FACTORS.astype(np.float64))
    np.testing.assert_allclose(value(exclusive_cumprod, FACTORS), expected, rtol=1e-5, atol=1e-7)
    cotangent = np.random.default_rng(1).normal(size=FACTORS.shape).astype(np.float32)
    expected = central_differences(lambda x: float((exclusive_products(x) * cotangent).sum()), FACTORS)
    assert_grad_close(gradient(exclusive_cumprod, FACTORS, cotangent).ravel(), expected, rtol=1e-5)


@all_forms
def test_weights_and_their_gradient_agree_with_the_oracle():
    alpha = ALPHA.copy()
    alpha[1, 3] = alpha[1, 6] = 1.0  # behind an opaque section too
    cotangent = np.random.default_rng(2).normal(size=alpha.shape).astype(np.float32)

    def weights(x):
        return np.stack([oracles.section_weights(row) for row in x])

    np.testing.assert_allclose(value(dense_weights, ALPHA), weights(ALPHA.astype(np.float64)), rtol=2e-5, atol=1e-9)
    expected = central_differences(lambda x: float((weights(x) * cotangent).sum()), alpha)
    assert_grad_close(gradient(dense_weights, alpha, cotangent).ravel(), expected, rtol=1e-5)
    # Fast-math adds 1 and 1e-7 first, which gives 1 + 1.19e-7.
    np.testing.assert_allclose(value(dense_weights, float_rows([1.0, 0.5, 1.0])), [[1.0, 5e-8, 5e-8]], rtol=0.25)


def test_opacity_of_a_distance_and_of_a_density_agrees_with_the_oracle():
    sdf, slope = RNG.normal(0.0, 0.2, (4, 9)).astype(np.float32), -RNG.random((4, 9)).astype(np.float32)
    lengths = RNG.uniform(0.0, 0.3, (4, 9)).astype(np.float32)
    entry, leave = volrend.interval_cdfs(*map(jt.array, (sdf, slope, lengths)), 20.0)
    exact = [array.astype(np.float64) for array in (sdf, slope, lengths)]
    half = exact[1] * exact[2] / 2.0
    np.testing.assert_allclose(entry.numpy(), oracles.sigmoid((exact[0] - half) * 20.0), atol=1e-6)
    np.testing.assert_allclose(leave.numpy(), oracles.sigmoid((exact[0] + half) * 20.0), atol=1e-6)
    expected = oracles.section_alpha(*exact, 20.0)
    np.testing.assert_allclose(volrend.alpha_from_cdfs(entry, leave).numpy(), expected, atol=2e-5)
    density = RNG.normal(0.0, 4.0, (4, 9)).astype(np.float32)
    found = value(volrend.alpha_from_density, np.log1p(np.exp(density)), lengths)
    np.testing.assert_allclose(found, 1.0 - np.exp(-oracles.softplus(density.astype(np.float64)) * lengths), atol=1e-6)


def test_the_annealed_slope_agrees_with_the_oracle():
    cos = np.linspace(-1.5, 1.5, 13, dtype=np.float32)
    for ratio in (0.0, 0.3, 1.0):
        slope = volrend.annealed_cos(jt.array(cos), ratio).numpy()
        np.testing.assert_allclose(slope, oracles.annealed_slope(cos.astype(np.float64), ratio), atol=1e-6)
        assert (slope <= 0.0).all()


def test_inverted_sphere_agrees_with_the_oracle_within_the_sphere_too():
    points = (RNG.normal(size=(12, 3)) * np.geomspace(0.1, 20.0, 12)[:, None]).astype(np.float32)
    expected = oracles.inverted_sphere(points.astype(np.float64))
    for shape in ((12,), (3, 4)):
        found = value(volrend.inverted_sphere, points.reshape(*shape, 3))
        np.testing.assert_allclose(found, expected.reshape(*shape, 4), atol=1e-6)


def test_clip_magnitude_and_length_have_their_gradients_at_the_edges():
    clipped = float_rows([-0.5, 0.0, 0.25, 1.0, 1.5])
    np.testing.assert_array_equal(value(lambda x: hard_clip(x, 0.0, 1.0), clipped), [[0.0, 0.0, 0.25, 1.0, 1.0]])
    np.testing.assert_array_equal(gradient(lambda x: hard_clip(x, 0.0, 1.0), clipped), [[0.0, 1.0, 1.0, 1.0, 0.0]])
    x = float_rows([-2.0, 0.0, 3.0])
    np.testing.assert_array_equal(value(magnitude, x), np.abs(x))
    np.testing.assert_array_equal(gradient(magnitude, x), [[-1.0, 0.0, 1.0]])
    x = float_rows([3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [1e-6, 0.0, 0.0])
    np.testing.assert_allclose(value(length, x), [5.0, 0.0, 1e-6], rtol=1e-6, atol=1e-14)
    np.testing.assert_allclose(gradient(length, x), [[0.6, 0.8, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]], rtol=1e-6)
    assert value(lambda v: length(v, keepdims=True), x).shape == (3, 1)
    x = RNG.normal(size=(3, 3)).astype(np.float32)  # and second derivatives
    v = jt.array(x)
    slope = jt.grad(length(v).sum(), v)
    actual = jt.grad((slope[:, 0] * slope[:, 1] * slope[:, 2]).sum(), v).numpy()
    expected = central_differences(lambda v: float((v / np.linalg.norm(v, axis=1)[:, None]).prod(axis=1).sum()), x)
    assert_grad_close(actual.ravel(), expected, rtol=1e-5)


# beta x = 20 exactly is where Jittor's own softplus loses its gradient; the ends lie far beyond float32's exp.
SOFTPLUS_POINTS = float_rows([-1e4, -3.0, -0.2, -0.1, -0.01, 0.0, 0.01, 0.1, 0.2, 0.25, 3.0, 1e4])


@pytest.mark.parametrize("beta", [1.0, 100.0])
def test_softplus_agrees_with_the_oracle_to_its_curvature(beta):
    points = SOFTPLUS_POINTS if beta == 100.0 else SOFTPLUS_POINTS * 100.0
    exact = points.astype(np.float64)
    slope = oracles.sigmoid(beta * exact)
    x = jt.array(points)
    first = jt.grad(softplus(x, beta).sum(), x)
    second = jt.grad(first.sum(), x)
    # Below beta x = -16 the float32 logarithm of 1 + exp(beta x) is 0.
    values = value(lambda v: softplus(v, beta), points)
    np.testing.assert_allclose(values, oracles.softplus(exact, beta), rtol=1e-5, atol=1e-7 / beta)
    np.testing.assert_allclose(first.numpy(), slope, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(second.numpy(), beta * slope * (1.0 - slope), rtol=1e-4, atol=1e-5 * beta)
