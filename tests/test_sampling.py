"""Sampling of depths, compared with the oracle, and properties for any input."""

import numpy as np
import oracles
import pytest
from dense_renderer import oracle_params, random_rays, tiny_renderer
from forms import FORMS, in_form
from hypothesis import given
from hypothesis import strategies as st

from models.estimators import hierarchical as sampling
from models.estimators.base import upload
from models.machine.backend import jt
from models.ops.upsample import invert_cdf, merge_depths, upsample_weights

ROWS = 4
RNG = np.random.default_rng(0)
NEAR = RNG.uniform(0.5, 1.5, (ROWS, 1)).astype(np.float32)
FAR = NEAR + RNG.uniform(1.5, 2.0, (ROWS, 1)).astype(np.float32)
DEPTHS = np.sort(RNG.uniform(0.0, 3.0, (ROWS, 9)), axis=1).astype(np.float32)


def as_var(noise):
    return noise if noise is None else jt.array(noise)


def jitter(columns):
    return np.random.default_rng(9).random((ROWS, columns), dtype=np.float32)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_first_depths_agree_with_the_oracle(count):
    for noise in (None, jitter(1)):
        actual = sampling.inside_depths(jt.array(NEAR), jt.array(FAR), count, as_var(noise))
        np.testing.assert_allclose(actual.numpy(), oracles.inside_depths(NEAR, FAR, count, noise), atol=1e-6)
    for noise in (None, jitter(count)):
        actual = sampling.outside_depths(jt.array(FAR), count, 16, as_var(noise))
        np.testing.assert_allclose(actual.numpy(), oracles.outside_depths(FAR, count, 16, noise), rtol=2e-6)


@given(total=st.integers(0, 300), rounds=st.integers(1, 40))
def test_rounds_add_up_and_differ_by_one_at_most(total, rounds):
    counts = sampling.round_counts(total, rounds)
    assert sum(counts) == total and len(counts) in (0, rounds)
    assert counts == sorted(counts)  # what is left over goes to the last, sharpest rounds
    assert not counts or counts[0] >= 0 and counts[-1] - counts[0] <= 1


@pytest.mark.parametrize("inv_s", [64.0, 512.0])
def test_upsample_weights_agree_with_the_oracle(inv_s):
    sdf = (np.sin(3.0 * DEPTHS) * 0.5 + RNG.normal(0.0, 0.05, DEPTHS.shape)).astype(np.float32)
    radius = RNG.uniform(0.6, 1.3, DEPTHS.shape).astype(np.float32)
    radius[0, :3] = 1.1  # the first two sections of this ray lie outside
    actual = upsample_weights(*map(jt.array, (DEPTHS, sdf, radius)), inv_s).numpy()
    rows = zip(*(array.astype(np.float64) for array in (DEPTHS, sdf, radius)), strict=True)
    np.testing.assert_allclose(actual, [oracles.upsample_weights(*row, inv_s) for row in rows], atol=2e-5)


@pytest.mark.parametrize("count", [1, 6])
def test_quantiles_agree_with_the_oracle(count):
    weights = (np.random.default_rng(0).random((ROWS, 8)) ** 6).astype(np.float32)
    actual = invert_cdf(jt.array(DEPTHS), jt.array(weights), count).numpy()
    rows = zip(DEPTHS.astype(np.float64), weights, strict=True)
    np.testing.assert_allclose(actual, [oracles.invert_cdf(*row, count) for row in rows], atol=2e-5)


def test_merging_keeps_every_depth_and_tells_where_it_was():
    new = RNG.uniform(0.0, 3.0, (ROWS, 5)).astype(np.float32)
    new[:, 0] = DEPTHS[:, 4]  # a tie
    merged, order = (value.numpy() for value in merge_depths(jt.array(DEPTHS), jt.array(new)))
    joined = np.hstack([DEPTHS, new])
    np.testing.assert_array_equal(merged, np.sort(joined, axis=1))
    np.testing.assert_array_equal(np.take_along_axis(joined, order, axis=1), merged)
    np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(14), (ROWS, 1)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("n_samples", "n_importance", "steps", "rounds"),
    [(1, 0, 0, 0), (8, 7, 3, 3), (8, 2, 4, 2)],
)
def test_any_number_of_depths_and_rounds_gives_all_ascending(form, n_samples, n_importance, steps, rounds):
    renderer = tiny_renderer(n_samples=n_samples, n_importance=n_importance, up_sample_steps=steps)
    rays = random_rays(ROWS)
    with in_form(form):
        *added, depths = (value.numpy() for value in renderer.up_sample_rounds(upload(rays)))
    assert len(added) == rounds and sum(new.shape[1] for new in added) == n_importance
    assert depths.shape == (ROWS, n_samples + n_importance)
    assert np.isfinite(depths).all() and (np.diff(depths, axis=1) >= 0.0).all()
    even = sampling.inside_depths(jt.array(rays.near), jt.array(rays.far), n_samples, None).numpy()
    np.testing.assert_array_equal(depths, np.sort(np.hstack([even, *added]), axis=1))


@pytest.mark.parametrize("form", FORMS)
def test_each_round_agrees_with_the_oracle(form):
    renderer, rays = tiny_renderer(n_importance=9, up_sample_steps=3), random_rays(ROWS)
    params = oracle_params(renderer)["sdf"]
    with in_form(form):
        *added, _ = (value.numpy().astype(np.float64) for value in renderer.up_sample_rounds(upload(rays)))
    for ray in range(ROWS):
        depths = oracles.inside_depths(rays.near[ray], rays.far[ray], renderer.conf.n_samples)
        for index, new in enumerate(added):
            points = rays.origins[ray] + depths[:, None] * rays.directions[ray].astype(np.float64)
            sdf = oracles.sdf_network(params, renderer.fields.sdf.conf, points)[0][:, 0]
            radius = np.linalg.norm(points, axis=1)
            weights = oracles.upsample_weights(depths, sdf, radius, 64.0 * 2**index)
            expected = oracles.invert_cdf(depths, weights, new.shape[1])
            # The sharpness amplifies float32 errors of the sdf; the golden numbers' own bound for depths.
            np.testing.assert_allclose(new[ray], expected, atol=2e-3)
            depths = np.sort(np.append(depths, new[ray]))
