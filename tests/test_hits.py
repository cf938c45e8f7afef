"""Where rays of packed samples meet a surface: the choice against numpy's, gradients, parts, and what is not finite."""

import numpy as np
import pytest
from forms import FORMS, in_form
from gradcheck import assert_grad_close, central_differences
from test_packed import LENGTHS, offsets_of

from models.machine.backend import jt
from models.ops.hits import Hits, surface_hits

SPARE = 5  # samples at the end that belong to no ray
OPACITY, REACH, STEEPEST = 0.5, 0.1, 0.1


@pytest.fixture(params=FORMS)
def form(request):
    with in_form(request.param):
        yield request.param


def given(lengths, seed=0):
    """sdf [S, 1], gradient [S, 3], weights [S, 1] with many ties, places [S, 3], directions [S, 3], offsets [R + 1]."""
    rng = np.random.default_rng(seed)
    count = int(np.sum(lengths)) + SPARE
    directions = rng.normal(size=(count, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    gradient = rng.normal(size=(count, 3)) - directions
    weights = rng.integers(0, 5, (count, 1)) / 8
    values = rng.normal(0, 0.06, (count, 1)), gradient, weights, rng.uniform(-1, 1, (count, 3)), directions
    return *(value.astype(np.float32) for value in values), offsets_of(lengths)


def sought(sdf, gradient, weights, places, directions, offsets, every=1, reach=REACH):
    """The samples, and whose they are, as the host chose them once; [N] twice."""
    rays = np.flatnonzero(np.diff(offsets) > 0)
    if not len(rays):
        return rays, rays
    heavy = weights[: offsets[-1], 0]
    peaks = np.maximum.reduceat(heavy, offsets[rays])
    row = np.repeat(np.arange(len(rays)), np.diff(offsets)[rays])
    hits = np.flatnonzero(heavy == peaks[row])
    at = hits[np.unique(row[hits], return_index=True)[1]]
    is_opaque = np.add.reduceat(heavy, offsets[rays]) > OPACITY
    at, rays = at[is_opaque], rays[is_opaque]
    is_chosen = places[at].view(np.uint32).sum(axis=1, dtype=np.uint32) // 64 % every == 0
    at, rays = at[is_chosen], rays[is_chosen]
    slope = (gradient[at] * directions[at]).sum(axis=1)
    is_met = (slope < -STEEPEST) & (np.abs(sdf[at, 0]) < reach)
    return at[is_met], rays[is_met]


def found(values, every=1):
    """The operation of host arrays: at, points and normals."""
    hits = surface_hits(*map(jt.array, values), Hits(len(values[0]), every, OPACITY, REACH, STEEPEST))
    return [value.numpy() for value in hits]


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("name", LENGTHS)
def test_rays_meet_the_surface_at_the_samples_that_the_host_chose(form, name, every):
    for seed in range(2):
        sdf, gradient, weights, places, directions, offsets = values = given(LENGTHS[name], seed)
        at, rays = sought(*values, every)
        expected = np.full(len(offsets) - 1, -1)
        expected[rays] = at
        index, points, normals = found(values, every)
        np.testing.assert_array_equal(index, expected)
        slope = (gradient[at] * directions[at]).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(points[rays], places[at] - sdf[at] / slope * directions[at], atol=1e-6)
        np.testing.assert_array_equal(normals[rays], gradient[at])
        assert not points[index < 0].any() and not normals[index < 0].any()


def test_gradients_are_difference_quotients_and_weights_have_none(form):
    values = [value.astype(np.float64) for value in given(LENGTHS["many"])[:5]]
    offsets = offsets_of(LENGTHS["many"])
    at, rays = sought(*given(LENGTHS["many"]))
    rng = np.random.default_rng(1)
    pulls = rng.normal(size=(2, len(offsets) - 1, 3)).astype(np.float32)

    def total(sdf, gradient):
        slope = (gradient[at] * values[4][at]).sum(axis=1, keepdims=True)
        points = values[3][at] - sdf[at] / slope * values[4][at]
        return (points * pulls[0][rays]).sum() + (gradient[at] * pulls[1][rays]).sum()

    inputs = [jt.array(value.astype(np.float32)) for value in values]
    hits = surface_hits(*inputs, jt.array(offsets), Hits(len(values[0]), 1, OPACITY, REACH, STEEPEST))
    loss = (hits[1] * jt.array(pulls[0])).sum() + (hits[2] * jt.array(pulls[1])).sum()
    d_sdf, d_gradient, d_weights = (value.numpy() for value in jt.grad(loss, inputs[:3]))
    for found_slope, function, value in (
        (d_sdf, lambda x: total(x.reshape(-1, 1), values[1]), values[0]),
        (d_gradient, lambda x: total(values[0], x.reshape(-1, 3)), values[1]),
    ):
        assert_grad_close(found_slope.reshape(-1), central_differences(function, value))
    others = np.setdiff1d(np.arange(len(values[0])), at)
    assert not d_sdf[others].any() and not d_gradient[others].any() and not d_weights.any()


@pytest.mark.parametrize(("index", "bad"), [(0, np.nan), (1, np.inf), (2, np.inf)])
def test_what_is_not_finite_meets_nothing_and_spoils_no_other_ray(form, index, bad):
    values = given(LENGTHS["many"])
    offsets = values[-1]
    at, rays = sought(*values)
    spoilt = [value.copy() for value in values]
    spoilt[index][at[::2], -1] = bad
    spoilt[index][[0, -1], -1] = bad  # the first sample, and one of no ray
    keeps = np.setdiff1d(np.arange(len(offsets) - 1), [*rays[::2], 0])
    before, after = found(values), found(spoilt)
    assert (after[0][rays[::2]] == -1).all()
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one[keeps], other[keeps])
        assert np.isfinite(other).all()
    inputs = [jt.array(value) for value in spoilt]
    hits = surface_hits(*inputs, Hits(len(values[0]), 1, OPACITY, REACH, STEEPEST))
    slopes = jt.grad(hits[1].sum() + hits[2].sum(), inputs[:2])
    assert all(np.isfinite(value.numpy()).all() for value in slopes) and slopes[0].numpy()[at[1::2]].any()
