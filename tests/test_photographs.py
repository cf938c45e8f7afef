"""Exposure correction: the colour transforms learned for the photographs."""

from dataclasses import replace

import numpy as np
import pytest
from gradcheck import assert_grad_close, central_differences
from test_fast_neus import CONF, SHORT, TINY
from trainings import trainer_of

from data.pixels import to_uint8
from data.prepare.load import load_scene
from models.conf import load_config
from models.fields.color import Exposure
from models.machine.backend import jt


def test_colours_begin_as_they_are_and_slopes_are_finite_differences():
    rng = np.random.default_rng(0)
    exposure, rgb, view, cotangent = Exposure(4), rng.random((30, 3)), rng.integers(0, 4, 30), rng.normal(size=(30, 3))
    affine, colours = rng.normal(0, 0.3, (4, 12)), jt.array(rgb.astype(np.float32))
    assert np.array_equal(exposure(colours, jt.array(view)).numpy(), colours.numpy())

    def shown(affine, rgb):
        rows = (affine - affine.mean(axis=0))[view]
        return np.einsum("rij,rj->ri", rows[:, :9].reshape(-1, 3, 3), rgb) + rows[:, 9:] + rgb

    exposure.affine.update(jt.array(affine.astype(np.float32)).detach())
    exposure.affine.start_grad()
    found = exposure(colours, jt.array(view))
    np.testing.assert_allclose(found.numpy(), shown(affine, rgb), atol=1e-5)
    slopes = jt.grad((found * jt.array(cotangent.astype(np.float32))).sum(), [exposure.affine, colours])
    expected = [
        central_differences(lambda x: (shown(x, rgb) * cotangent).sum(), affine),
        central_differences(lambda x: (shown(affine, x) * cotangent).sum(), rgb),
    ]
    for slope, wanted in zip(slopes, expected, strict=True):
        assert_grad_close(slope.numpy().reshape(-1), wanted)


@pytest.mark.parametrize(("spread", "is_learned"), [(0.0, False), (0.7, True)])
def test_exposure_is_learned_where_the_photographs_differ_in_it(spread, is_learned):
    settings = ("model.photographs.exposure=auto",)
    conf = load_config(CONF, "demo", [*TINY, *SHORT, *settings])
    scene = load_scene(conf.dataset)
    gains = np.exp(np.random.default_rng(0).uniform(-spread, spread, scene.n_views))
    images = tuple(to_uint8(image / 255 * gain) for image, gain in zip(scene.images, gains, strict=True))
    assert ("exposure" in trainer_of(conf, replace(scene, images=images)).model.networks) == is_learned
