"""Exposure correction: the colour transforms learned for the photographs."""

import json
from dataclasses import replace

import numpy as np
import pytest
from gradcheck import assert_grad_close, central_differences
from test_fast_neus import CONF, SHORT, TINY
from trainings import trainer_of

from data.io.images import to_uint8
from data.scenes.load import load_held_out, load_scene
from models.fields.photographs import Exposure
from models.machine.backend import jt
from models.methods.conf import load_config
from models.structs import StepContext

LEARNED = ("model.photographs.exposure=true", "model.photographs.exposure_from=0")


def loaded(*settings):
    conf = load_config(CONF, "demo", [*TINY, *SHORT, *settings])
    return conf, load_scene(conf.dataset)


# colours


def test_colours_begin_as_they_are_and_their_mean_stays_the_identity():
    exposure, rng = Exposure(5), np.random.default_rng(0)
    rgb, view = rng.random((40, 3)).astype(np.float32), rng.integers(0, 5, 40)
    assert np.array_equal(exposure(jt.array(rgb), jt.array(view)).numpy(), rgb)
    exposure.affine.update(jt.array(rng.normal(size=(5, 12)).astype(np.float32)).detach())
    mean = np.mean([exposure(jt.array(rgb), jt.array(np.full(40, one))).numpy() for one in range(5)], axis=0)
    np.testing.assert_allclose(mean, rgb, atol=1e-6)


def test_the_slopes_of_colours_are_those_of_finite_differences():
    rng = np.random.default_rng(0)
    exposure, rgb, view, cotangent = Exposure(4), rng.random((30, 3)), rng.integers(0, 4, 30), rng.normal(size=(30, 3))
    affine = rng.normal(0, 0.3, (4, 12))

    def shown(affine, rgb):
        rows = (affine - affine.mean(axis=0))[view]
        return np.einsum("rij,rj->ri", rows[:, :9].reshape(-1, 3, 3), rgb) + rows[:, 9:] + rgb

    exposure.affine.update(jt.array(affine.astype(np.float32)).detach())
    exposure.affine.start_grad()
    colours = jt.array(rgb.astype(np.float32))
    found = exposure(colours, jt.array(view))
    np.testing.assert_allclose(found.numpy(), shown(affine, rgb), atol=1e-5)
    slopes = jt.grad((found * jt.array(cotangent.astype(np.float32))).sum(), [exposure.affine, colours])
    expected = [
        central_differences(lambda x: (shown(x, rgb) * cotangent).sum(), affine),
        central_differences(lambda x: (shown(affine, x) * cotangent).sum(), rgb),
    ]
    for slope, wanted in zip(slopes, expected, strict=True):
        assert_grad_close(slope.numpy().reshape(-1), wanted)


def gains_of(scene, spread=0.7, seed=0):
    """A gain for each channel of each photograph, [V, 1, 1, 3], whose mean is 1."""
    gains = np.exp(np.random.default_rng(seed).uniform(-spread, spread, (scene.n_views, 1, 1, 3)))
    return gains / gains.mean(axis=0)


def brightened(scene, gains):
    images = tuple(to_uint8(image / 255 * gain) for image, gain in zip(scene.images, gains, strict=True))
    return replace(scene, images=images)


@pytest.mark.parametrize(("spread", "is_learned"), [(0.0, False), (0.7, True)])
def test_exposure_is_learned_where_the_photographs_differ_in_it(spread, is_learned):
    conf, scene = loaded("model.photographs.exposure=true", "model.photographs.exposure_from=0.2")
    model = trainer_of(conf, brightened(scene, gains_of(scene, spread).mean(axis=3, keepdims=True))).model
    assert ("exposure" in model.networks) == is_learned


def uneven(settings, steps=250):
    """Held-out PSNR inside the masks, of the scene as it was, and the model trained on photographs given gains."""
    conf, scene = loaded(*settings, f"train.end_iter={steps}", "model.packed.prune_every=32", "model.packed.warm_up=10")
    gains = gains_of(scene)
    trainer = trainer_of(conf, brightened(scene, gains))
    for _ in range(steps):
        trainer.step()
    trainer.settle()
    held_out, errors = load_held_out(conf.dataset, scene, 0.0), []
    for view in range(0, held_out.n_views, 2):
        rgb, mask = held_out.rgb_image(view, 2).reshape(-1, 3), held_out.mask_image(view, 2).reshape(-1) > 0.5
        shown = trainer.model.view(held_out.rays(view, 2)[0], StepContext(steps, None)).rgb
        errors.append(np.mean((shown - rgb)[mask] ** 2))
    return -10 * np.log10(np.mean(errors)), trainer.model, gains[:, 0, 0]


@pytest.mark.slow
def test_gains_of_photographs_are_learned_and_the_colours_regained():
    without, with_them = uneven(("model.photographs.exposure=false",)), uneven(LEARNED)
    assert with_them[0] > without[0] + 0.5, (without[0], with_them[0])
    changes = with_them[1].exposure.changes().numpy()
    grey = 0.5  # what each makes of it tells its gain
    found = 1 + (changes[:, :9].reshape(-1, 3, 3).sum(axis=2) * grey + changes[:, 9:]) / grey
    assert np.corrcoef(found.reshape(-1), with_them[2].reshape(-1))[0, 1] > 0.85


@pytest.mark.slow
def test_it_is_kept_in_checkpoints_and_held_to_the_number_of_photographs():
    conf, scene = loaded(*LEARNED, "train.ema_decay=0.9")
    trainer = trainer_of(conf, scene)
    for _ in range(4):
        trainer.step()
    checkpoint = trainer.checkpoint({})
    assert checkpoint.tensors["exposure"]["affine"].shape == (scene.n_views, 12)
    assert np.abs(checkpoint.tensors["exposure"]["affine"]).max() > 0
    json.dumps(checkpoint.state)
    other = trainer_of(conf, scene)
    other.restore(checkpoint)
    again, here = (one.checkpoint({}).tensors for one in (other, trainer))
    assert all(np.array_equal(again[name][key], here[name][key]) for name in here for key in here[name])
