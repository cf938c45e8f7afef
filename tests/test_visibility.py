"""Which samples of a ray are visible, against float64."""

import numpy as np
import oracles
import pytest
from trainings import samples_of

from models.estimators.visibility import LEAST_TRANSMITTANCE, LEAST_WEIGHT, surface_weights, transmitted
from models.machine.backend import jt


@pytest.mark.parametrize(("inv_s", "step"), [(20.0, 0.01), (20.0, 0.03), (100.0, 0.03), (400.0, 0.01)])
def test_weights_of_rays_that_graze_or_hit_a_sphere(inv_s, step):
    """The slopes are differences between samples; a grazing ray has few where it is close to the sphere."""
    rays, count, radius = 300, 80, 0.5
    rng = np.random.default_rng(0)
    closest = rng.uniform(0.0, radius + 4 / inv_s, (rays, 1))  # distances of the rays to the centre
    depths = (np.arange(count) - count / 2 + rng.uniform(0, 1, (rays, 1))) * step
    distance = np.hypot(closest, depths)
    alpha = oracles.section_alpha(distance - radius, np.minimum(depths / distance, 0.0), step, inv_s)
    expected = np.stack([oracles.section_weights(each) for each in alpha])

    points = np.zeros((rays * count, 3), np.float32)
    found = samples_of(np.arange(rays + 1) * count, points, points, depths)
    sdf = (distance - radius).reshape(-1, 1).astype(np.float32)
    weights, _ = surface_weights(found, jt.array(sdf), jt.array(np.float32([inv_s])), step)
    weights = weights.numpy().reshape(rays, count)
    omitted = np.where(weights > LEAST_WEIGHT, 0.0, expected).sum(axis=1)
    assert omitted.max() < 1e-3
    np.testing.assert_allclose(weights.sum(axis=1), expected.sum(axis=1), atol=2e-3 if step * inv_s < 4 else 0.02)


def test_background_samples_behind_opaque_ones_are_hidden():
    rng = np.random.default_rng(0)
    alpha = rng.choice([0.0, 1e-9, 0.3, 0.999, 1.0], (200, 1), p=[0.2, 0.2, 0.4, 0.1, 0.1]).astype(np.float32)
    alpha[160] = np.nan
    offsets = np.int32([0, 40, 40, 41, 120, 160, 200])
    found = transmitted(jt.array(alpha), jt.array(offsets)).numpy()
    for first, last in zip(offsets, offsets[1:], strict=False):
        clear = np.cumprod(np.append(1.0, 1.0 - alpha[first : max(last - 1, first), 0].astype(np.float64)))[
            : last - first
        ]
        is_sure = np.abs(clear - LEAST_TRANSMITTANCE) > 1e-5  # False for NaN
        np.testing.assert_array_equal(found[first:last][is_sure], (clear > LEAST_TRANSMITTANCE)[is_sure])
    assert found[160] and 10 < found.sum() < 100  # a NaN reaches the loss
