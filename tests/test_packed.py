"""Volume rendering over packed samples: what holds whatever the rays, and both forms against float64 and each other."""

import numpy as np
import pytest
from forms import FORMS, in_form
from gradcheck import assert_grad_close, central_differences

from models.machine.backend import jt
from models.ops.packed import packed_sum, packed_weights
from models.ops.section_alpha import section_alpha

SPARE = 3  # samples at the end that belong to no ray
LENGTHS = {
    "mixed": [5, 0, 1, 12, 0, 0, 3],
    "one sample": [1],
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


def samples(lengths, seed=0, most=0.9):
    rng = np.random.default_rng(seed)
    count = int(np.sum(lengths)) + SPARE
    return rng.uniform(0, most, (count, 1)).astype(np.float32), rng.normal(size=(count, 4)).astype(np.float32)


def render64(alpha, values, offsets, opaque=-np.inf):
    """Weights [S, 1], what is left [R, 1] and sums [R, C], by the words of the definition."""
    weights, left = np.zeros_like(alpha, np.float64), np.ones((len(offsets) - 1, 1))
    for ray in range(len(offsets) - 1):
        for i in range(offsets[ray], offsets[ray + 1]):
            if left[ray] < opaque:
                break
            weights[i] = alpha[i] * left[ray]
            left[ray] *= 1 - alpha[i]
    pairs = zip(offsets[:-1], offsets[1:], strict=True)
    return weights, left, np.stack([(weights[a:b] * values[a:b]).sum(axis=0) for a, b in pairs])


def render(alpha, values, lengths, opaque=0.0):
    offsets = jt.array(offsets_of(lengths))
    weights, left = packed_weights(jt.array(alpha), offsets, opaque)
    sums = packed_sum(weights, jt.array(values), offsets)
    return [value.numpy() for value in (weights, left, sums)]


@pytest.mark.parametrize("name", LENGTHS)
def test_weights_and_sums_are_those_of_the_definition(form, name):
    alpha, values = samples(LENGTHS[name])
    expected = render64(alpha, values, offsets_of(LENGTHS[name]))
    for actual, value in zip(render(alpha, values, LENGTHS[name]), expected, strict=True):
        np.testing.assert_allclose(actual, value, atol=1e-5)


@pytest.mark.parametrize("name", LENGTHS)
def test_weights_are_positive_and_with_what_is_left_sum_to_one(form, name):
    alpha, _ = samples(LENGTHS[name], seed=1)
    weights, left, sums = render(alpha, np.ones((len(alpha), 1), np.float32), LENGTHS[name])
    assert (weights >= 0).all() and (left >= -1e-6).all() and (sums <= 1 + 1e-6).all()
    np.testing.assert_allclose(sums + left, 1.0, atol=1e-5)
    empty = np.array(LENGTHS[name]) == 0
    assert (left[empty] == 1).all() and (sums[empty] == 0).all()
    assert (weights[-SPARE:] == 0).all()


def test_behind_a_wall_nothing_weighs_and_nothing_has_a_gradient(form):
    alpha, values = samples([6, 4])
    alpha[2] = 1.0
    offsets = jt.array(offsets_of([6, 4]))
    x, colours = jt.array(alpha), jt.array(values)
    weights, left = packed_weights(x, offsets)
    sums = packed_sum(weights, colours, offsets)
    d_alpha, d_values = (v.numpy() for v in jt.grad(sums.sum() + left.sum(), [x, colours]))
    assert left.numpy()[0] == 0 and (weights.numpy()[3:6] == 0).all() and weights.numpy()[2] > 0
    assert (d_alpha[3:6] == 0).all() and (d_values[3:6] == 0).all() and np.isfinite(d_alpha).all()
    assert (d_alpha[:3] != 0).all() and (d_alpha[6:10] != 0).all()


def test_a_ray_ends_once_it_is_opaque(form):
    alpha, values = samples([8], most=0.5)
    alpha[:] = 0.9
    weights, left, _ = render(alpha, values, [8], opaque=0.05)
    assert (weights[:2] > 0).all() and (weights[2:] == 0).all()
    assert left[0] == pytest.approx(0.01, rel=1e-5)


def test_rays_in_another_order_give_the_same_bits(form):
    lengths = LENGTHS["mixed"]
    alpha, values = samples(lengths)
    offsets, order = offsets_of(lengths), np.random.default_rng(0).permutation(len(lengths))
    places = np.concatenate([np.arange(offsets[r], offsets[r + 1]) for r in order] + [np.arange(-SPARE, 0)])
    before = render(alpha, values, lengths)
    after = render(alpha[places], values[places], [lengths[r] for r in order])
    for actual, expected, picked in zip(after, before, (places, order, order), strict=True):
        np.testing.assert_array_equal(actual, expected[picked])


@pytest.mark.parametrize("name", ["mixed", "one sample"])
@pytest.mark.parametrize("wall", [False, True])
def test_gradients_are_those_of_finite_differences(form, name, wall):
    lengths = LENGTHS[name]
    alpha, values = samples(lengths, seed=2)
    if wall:
        alpha[0] = 1.0
    offsets, rng = offsets_of(lengths), np.random.default_rng(3)
    cotangents = [rng.normal(size=s).astype(np.float32) for s in (alpha.shape, (len(lengths), 1), (len(lengths), 4))]
    x, colours = jt.array(alpha), jt.array(values)
    weights, left = packed_weights(x, jt.array(offsets), 0.0)
    found = (weights, left, packed_sum(weights, colours, jt.array(offsets)))
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
    sdf, cos = rng.normal(size=(50, 1)).astype(np.float32) * 0.1, rng.uniform(-1.2, 1.2, (50, 1)).astype(np.float32)
    lengths, cotangent = rng.uniform(0.005, 0.05, (50, 1)).astype(np.float32), rng.normal(size=(50, 1))
    inv_s = np.array([30.0], np.float32)
    given = [jt.array(value) for value in (sdf, cos, lengths, inv_s)]
    alpha = section_alpha(*given, ratio)
    np.testing.assert_allclose(alpha.numpy(), alpha64(sdf, cos, lengths, 30.0, ratio), atol=1e-5)
    assert (alpha.numpy() >= 0).all() and (alpha.numpy() <= 1).all()
    found = jt.grad((alpha * jt.array(cotangent.astype(np.float32))).sum(), [given[0], given[1], given[3]])
    values = [sdf, cos, lengths, inv_s]
    for index, actual in zip((0, 1, 3), found, strict=True):

        def moved(x, index=index):
            return (alpha64(*[x if i == index else v for i, v in enumerate(values)], ratio) * cotangent).sum()

        assert_grad_close(actual.numpy().reshape(-1), central_differences(moved, values[index]), atol=1e-5)


def test_far_inside_and_far_outside_opacities_and_gradients_are_finite(form):
    # As many as fill vectors: there the compiler's fast maths is another than for a few.
    sdf = jt.array(np.repeat(np.array([[-1e4], [-5.0], [5.0], [1e4]], np.float32), 40, axis=0))
    cos, lengths, inv_s = -jt.ones((160, 1)), jt.ones((160, 1)) * 0.01, jt.array([5000.0])
    alpha = section_alpha(sdf, cos, lengths, inv_s, 1.0)
    assert np.allclose(alpha.numpy().reshape(4, 40).T, [1, 1, 1e-5, 1e-5], atol=1e-6)
    assert all(np.isfinite(v.numpy()).all() for v in jt.grad(alpha.sum(), [sdf, cos, inv_s]))


def test_sums_are_the_same_bits_for_any_number_of_threads(openmp_threads):
    rng = np.random.default_rng(0)
    found = []
    sdf, cos = rng.normal(size=(20000, 1)).astype(np.float32) * 0.1, rng.uniform(-1, 1, (20000, 1)).astype(np.float32)
    for threads in (1, 2, 3, 5):
        openmp_threads(threads)
        inv_s, x = jt.array([50.0]), jt.array(sdf)
        alpha = section_alpha(x, jt.array(cos), jt.ones((20000, 1)) * 0.01, inv_s, 1.0)
        weights, _ = packed_weights(alpha, jt.array(np.arange(0, 20001, 20).astype(np.int32)))
        found.append([v.numpy() for v in (weights, *jt.grad(weights.sqr().sum(), [x, inv_s]))])
    assert all(np.array_equal(a, b) for other in found[1:] for a, b in zip(other, found[0], strict=True))
