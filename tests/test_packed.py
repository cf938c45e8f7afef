"""Volume rendering over packed samples: what holds whatever the rays, and both forms against float64 and each other."""

import numpy as np
import pytest
from forms import FORMS, in_form
from gradcheck import assert_grad_close, central_differences

from models.machine.backend import jt
from models.ops.volrend import alpha_from_sdf, composite, weights_from_alpha

SPARE = 3  # samples at the end that belong to no ray
LENGTHS = {
    "mixed": [5, 0, 1, 12, 0, 0, 3],
    "no samples": [0, 0],
    "one long ray": [300],
    "many": [r % 9 for r in range(200)],
}


@pytest.fixture(params=FORMS)
def form(request):
    with in_form(request.param):
        yield request.param


def offsets_of(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def samples(lengths, seed=0):
    rng = np.random.default_rng(seed)
    count = int(np.sum(lengths)) + SPARE
    return rng.uniform(0, 0.9, (count, 1)).astype(np.float32), rng.normal(size=(count, 4)).astype(np.float32)


def render64(alpha, values, offsets):
    """Weights [S, 1], what is left [R, 1] and sums [R, C], by the words of the definition."""
    weights, left = np.zeros_like(alpha, np.float64), np.ones((len(offsets) - 1, 1))
    pairs = list(zip(offsets[:-1], offsets[1:], strict=True))
    for ray, (start, stop) in enumerate(pairs):
        for i in range(start, stop):
            weights[i] = alpha[i] * left[ray]
            left[ray] *= 1 - alpha[i]
    return weights, left, np.stack([(weights[a:b] * values[a:b]).sum(axis=0) for a, b in pairs])


def render(alpha, values, lengths, opaque=0.0):
    offsets = jt.array(offsets_of(lengths))
    weights, left = weights_from_alpha(jt.array(alpha), offsets, opaque)
    sums = composite(weights, jt.array(values), offsets)
    return [value.numpy() for value in (weights, left, sums)]


@pytest.mark.parametrize("name", LENGTHS)
def test_weights_and_sums_are_those_of_the_definition(form, name):
    alpha, values = samples(LENGTHS[name])
    values[:, 0] = 1.0  # whose sums, with what is left, are 1
    weights, left, sums = found = render(alpha, values, LENGTHS[name])
    for actual, value in zip(found, render64(alpha, values, offsets_of(LENGTHS[name])), strict=True):
        np.testing.assert_allclose(actual, value, atol=1e-5)
    assert (weights >= 0).all() and (left >= -1e-6).all() and (weights[-SPARE:] == 0).all()
    np.testing.assert_allclose(sums[:, :1] + left, 1.0, atol=1e-5)
    empty = np.array(LENGTHS[name]) == 0
    assert (left[empty] == 1).all() and (sums[empty] == 0).all()


def test_a_ray_ends_once_it_is_opaque(form):
    _, values = samples([8])
    weights, left, _ = render(np.full((8 + SPARE, 1), 0.9, np.float32), values, [8], opaque=0.05)
    assert (weights[:2] > 0).all() and (weights[2:] == 0).all() and left[0] == pytest.approx(0.01, rel=1e-5)


@pytest.mark.parametrize("wall", [False, True])
def test_gradients_are_those_of_finite_differences(form, wall):
    lengths = LENGTHS["mixed"]
    alpha, values = samples(lengths, seed=2)
    alpha[0] = 1.0 if wall else alpha[0]
    offsets, rng = offsets_of(lengths), np.random.default_rng(3)
    cotangents = [rng.normal(size=s).astype(np.float32) for s in (alpha.shape, (len(lengths), 1), (len(lengths), 4))]
    x, colours = jt.array(alpha), jt.array(values)
    weights, left = weights_from_alpha(x, jt.array(offsets), 0.0)
    found = (weights, left, composite(weights, colours, jt.array(offsets)))
    loss = sum((a * jt.array(b)).sum() for a, b in zip(found, cotangents, strict=True))

    def loss64(a, v):
        return sum((x * y).sum() for x, y in zip(render64(a, v, offsets), cotangents, strict=True))

    d_alpha, d_values = (v.numpy().reshape(-1) for v in jt.grad(loss, [x, colours]))
    assert_grad_close(d_alpha, central_differences(lambda a: loss64(a, values), alpha))
    assert_grad_close(d_values, central_differences(lambda v: loss64(alpha, v), values))


def alpha64(sdf, cos, lengths, inv_s, ratio):
    slope = -(np.maximum(0.5 - 0.5 * cos, 0) * (1 - ratio) + np.maximum(-cos, 0) * ratio)
    entry, exit_ = (0.5 * (1 + np.tanh((sdf + side * slope * lengths / 2) * inv_s / 2)) for side in (-1, 1))
    return (entry - exit_ + 1e-5) / (entry + 1e-5)


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_the_opacity_of_sections_and_its_gradients(form, ratio):
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(50, 1)) * 0.1, rng.uniform(-1.2, 1.2, (50, 1)), rng.uniform(0.005, 0.05, (50, 1))]
    values, cotangent = [v.astype(np.float32) for v in (*values, np.array([30.0]))], rng.normal(size=(50, 1))
    given = [jt.array(value) for value in values]
    alpha = alpha_from_sdf(*given, ratio)
    np.testing.assert_allclose(alpha.numpy(), alpha64(*values, ratio), atol=1e-5)
    assert (alpha.numpy() >= 0).all() and (alpha.numpy() <= 1).all()
    found = jt.grad((alpha * jt.array(cotangent.astype(np.float32))).sum(), [given[0], given[1], given[3]])
    for index, actual in zip((0, 1, 3), found, strict=True):

        def moved(x, index=index):
            return (alpha64(*[x if i == index else v for i, v in enumerate(values)], ratio) * cotangent).sum()

        assert_grad_close(actual.numpy().reshape(-1), central_differences(moved, values[index]), atol=1e-5)


def test_far_inside_and_far_outside_opacities_and_gradients_are_finite(form):
    # As many as fill vectors: there the compiler's fast maths is another than for a few.
    sdf = jt.array(np.repeat(np.float32([[-1e4], [-5.0], [5.0], [1e4]]), 40, axis=0))
    cos, lengths, inv_s = -jt.ones((160, 1)), jt.ones((160, 1)) * 0.01, jt.array([5000.0])
    alpha = alpha_from_sdf(sdf, cos, lengths, inv_s, 1.0)
    assert np.allclose(alpha.numpy().reshape(4, 40).T, [1, 1, 1e-5, 1e-5], atol=1e-6)
    assert all(np.isfinite(v.numpy()).all() for v in jt.grad(alpha.sum(), [sdf, cos, inv_s]))


def test_sums_are_the_same_bits_for_any_number_of_threads(openmp_threads):
    rng, found = np.random.default_rng(0), []
    sdf, cos = (rng.uniform(-1, 1, (20000, 1)).astype(np.float32) for _ in range(2))
    for threads in (1, 2, 3, 5):
        openmp_threads(threads)
        inv_s, x = jt.array([50.0]), jt.array(0.1 * sdf)
        alpha = alpha_from_sdf(x, jt.array(cos), jt.ones((20000, 1)) * 0.01, inv_s, 1.0)
        weights, _ = weights_from_alpha(alpha, jt.array(np.arange(0, 20001, 20).astype(np.int32)))
        found.append([v.numpy().tobytes() for v in (weights, *jt.grad(weights.sqr().sum(), [x, inv_s]))])
    assert all(other == found[0] for other in found)
