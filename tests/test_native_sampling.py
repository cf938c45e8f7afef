"""The native up-sampling round against its reference in plain Jittor, and against the published depths."""

import numpy as np
import pytest
from forms import CUDA_FORMS, OWN_FORMS, in_form

from models.machine.backend import jt
from models.ops.elementwise import length
from models.ops.upsample import invert_cdf, upsample, upsample_weights
from models.ops.volrend import points_along


def rays_through_a_sphere(rng, rays, count):
    """Origins, directions, ascending depths and the distances to a sphere of radius 0.5 at them."""
    origins = rng.normal(size=(rays, 3))
    origins *= 2.5 / np.linalg.norm(origins, axis=1, keepdims=True)
    directions = rng.uniform(-0.4, 0.4, (rays, 3)) - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    depths = np.sort(rng.uniform(1.5, 3.5, (rays, count)), axis=1)
    points = origins[:, None] + directions[:, None] * depths[..., None]
    sdf = np.linalg.norm(points, axis=2) - 0.5
    return [jt.array(values.astype(np.float32)) for values in (origins, directions, depths, sdf)]


@pytest.mark.parametrize(("rays", "before", "count"), [(1, 2, 1), (33, 16, 4), (7, 40, 13), (5, 100, 64)])
@pytest.mark.parametrize("inv_s", [64.0, 512.0])
@pytest.mark.parametrize("form", OWN_FORMS)
def test_a_native_round_is_the_reference_round(rays, before, count, inv_s, form):
    origins, directions, depths, sdf = rays_through_a_sphere(np.random.default_rng(before), rays, before)
    with in_form(form):
        new, merged, order = (v.numpy() for v in upsample(origins, directions, depths, sdf, inv_s, count))
    if form in CUDA_FORMS:  # to the bit: a new depth is worth what the last place of a sum is
        np.testing.assert_array_equal(new, upsample(origins, directions, depths, sdf, inv_s, count)[0].numpy())
    radius = length(points_along(origins, directions, depths))
    weights = upsample_weights(depths, sdf, radius, inv_s)
    expected = invert_cdf(depths, weights, count).numpy()
    # A quantile falls into a bin of probability 1e-5 at worst, where one rounding of the CDF is 6e-3 of the bin.
    assert np.abs(new - expected).max() < 2e-3 and np.median(np.abs(new - expected)) < 1e-5
    joined = np.concatenate([depths.numpy(), new], axis=1)
    assert np.array_equal(merged, np.sort(joined, axis=1))
    assert np.array_equal(merged, np.take_along_axis(joined, order, axis=1))
    assert np.array_equal(np.sort(order, axis=1), np.broadcast_to(np.arange(before + count), order.shape))


def test_rays_without_a_surface_are_sampled_evenly():
    depths = jt.array(np.linspace(2.0, 3.0, 11, dtype=np.float32)[None])
    far_away = jt.array(np.full((1, 11), 5.0, np.float32))
    origins, directions = jt.array([[0.0, 0.9, -2.5]]), jt.array([[0.0, 0.0, 1.0]])
    new, *_ = upsample(origins, directions, depths, far_away, 64.0, 10)
    assert np.allclose(new.numpy()[0], np.linspace(2.05, 2.95, 10), atol=2e-3)
