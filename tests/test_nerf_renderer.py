"""The radiance field's renderer against a float64 statement of it, and against fields whose pictures are known."""

import dataclasses

import method_oracles as nerf_oracles
import numpy as np
import pytest
from config_samples import changed
from dense_renderer import TwoPassRenderer, params64, random_rays, roughen
from test_renderer import COUNT, MASK, RAYS, WHITE, assert_slopes, gradients_of

from models.estimators.conf import CoarseToFineConfig
from models.fields.conf import NerfConfig
from models.fields.radiance import NeRF
from models.machine.backend import jt
from models.methods.nerf import TwoPassModel
from models.plan import TrainingPlan
from models.rendering.losses import LOSSES, binary_mask
from models.rendering.protocol import Rendered
from models.structs import Objective
from models.training.gradient import losses_of

NETWORK = NerfConfig(D=3, W=12, d_in=3, multires=2, multires_view=1, skips=(1,), use_viewdirs=True)
SIZES = CoarseToFineConfig(n_samples=7, n_importance=9)
RNG = np.random.default_rng(5)
NOISE = {"coarse": RNG.random((COUNT, 7), dtype=np.float32), "fine": RNG.random((COUNT, 9), dtype=np.float32)}
MIDDLES = (np.full((COUNT, 7), 0.5), np.full((COUNT, 9), 0.5))
TARGET = RNG.random((COUNT, 3), dtype=np.float32)


def tiny(conf=SIZES, seed=0):
    """A renderer of two different random networks."""
    rng = np.random.default_rng(seed)
    return TwoPassRenderer(*(roughen(NeRF(NETWORK, rng), seed + i, 0.3) for i in (1, 2)), conf)


def model_of(renderer):
    """The kind of model around it."""
    return TwoPassModel(renderer.passes, renderer.estimator, changed().train, TrainingPlan())


def losses(output, mask, conf):
    """The mean of each term, and `total`."""
    rendered = Rendered(output.rendering, None, jt.array(TARGET), mask, mask, None, 0)
    weights = {"color_mse": 1.0, "coarse_mse": 1.0, "mask": conf.mask_weight}
    terms = {name: dataclasses.replace(LOSSES[name].term(rendered), weight=weights[name]) for name in weights}
    return losses_of(Objective(terms, None), {})


def oracle(renderer, noise=None, behind=None, params=None, fine=None):
    """The same picture by the oracle."""
    params = params or {name: params64(field) for name, field in vars(renderer.fields).items()}
    jitters = MIDDLES if noise is None else (noise["coarse"].astype(np.float64), noise["fine"].astype(np.float64))
    return nerf_oracles.render(params, NETWORK, RAYS, (7, 9), jitters, behind, fine)


@pytest.mark.parametrize(("noise", "behind"), [(None, None), (NOISE, WHITE)], ids=["middles, black", "jitter, white"])
def test_both_passes_agree_with_the_oracle(noise, behind):
    renderer = tiny()
    output = renderer.render(RAYS, noise, background_rgb=behind)
    for name, value in oracle(renderer, noise, behind).items():
        actual = getattr(output, name).numpy()
        assert actual.shape == value.shape, name
        np.testing.assert_allclose(actual, value, atol=1e-4, err_msg=name)
    assert output.rgb.numpy().std(axis=0).max() > 0.01 and (output.rgb.numpy() != output.coarse_rgb.numpy()).any()


def ball(points, view_dirs):
    """Raw density of a ball of radius 0.5, opaque within a hundredth of its surface, and a constant raw colour."""
    assert points.shape == view_dirs.shape and points.ndim == 2 and points.is_stop_grad()
    raw = (0.5 - points.sqr().sum(dim=1).sqrt()) * 20000.0
    return raw.reshape((-1, 1)), jt.zeros((points.shape[0], 3))


def test_a_ball_has_the_normals_distances_and_silhouette_of_a_ball():
    rays = random_rays(200, seed=8)
    renderer = TwoPassRenderer(ball, ball, CoarseToFineConfig(n_samples=64, n_importance=64))
    seen = model_of(renderer).view(rays, 0)
    closest = np.linalg.norm(rays.origins + rays.directions * (rays.near + 1.0), axis=1)
    hit, missed = closest < 0.4, closest > 0.55
    assert hit.sum() > 20 and missed.sum() > 20 and (seen.distance[missed] == 0.0).all()
    assert seen.opacity[hit].min() > 0.999 and seen.opacity[missed].max() < 1e-3
    half_chord = np.sqrt(0.25 - closest[hit, None] ** 2)
    np.testing.assert_allclose(seen.distance[hit], rays.near[hit] + 1.0 - half_chord, atol=0.03)
    points = (rays.origins + rays.directions * seen.distance)[hit]
    radial = points / np.linalg.norm(points, axis=1, keepdims=True)
    assert (np.sum(seen.normal[hit] * radial, axis=1) > 0.99).all()


def test_noise_is_drawn_only_where_asked_for():
    draws = model_of(tiny()).draw_noise(COUNT, np.random.default_rng(3))
    assert draws["coarse"].shape == (COUNT, 7) and draws["fine"].shape == (COUNT, 9)
    still, generator = tiny(dataclasses.replace(SIZES, perturb=0.0)), np.random.default_rng(3)
    assert model_of(still).draw_noise(COUNT, generator) is None
    assert generator.bit_generator.state == np.random.default_rng(3).bit_generator.state


@pytest.mark.parametrize("mask_weight", [0.0, 0.3])
def test_the_loss_and_its_terms_agree_with_the_oracle(mask_weight):
    renderer, conf = tiny(), changed(train={"mask_weight": mask_weight}).train
    found = losses(renderer.render(RAYS, NOISE), binary_mask(jt.array(MASK) if mask_weight else None, COUNT), conf)
    mask = MASK if mask_weight else np.ones_like(MASK)
    names = {"fine": "color_mse", "coarse": "coarse_mse"}
    for name, value in nerf_oracles.losses(oracle(renderer, NOISE), TARGET, mask, mask_weight).items():
        assert found[names.get(name, name)].item() == pytest.approx(value, rel=1e-4), name


@pytest.mark.slow
@pytest.mark.parametrize("behind", [None, WHITE], ids=["black", "white"])
def test_weight_gradients_of_the_loss_agree_with_finite_differences(behind):
    renderer, conf = tiny(), changed(train={"mask_weight": 0.3}).train
    output = renderer.render(RAYS, NOISE, background_rgb=behind)
    params = {name: params64(field) for name, field in vars(renderer.fields).items()}
    gradients = gradients_of(losses(output, jt.array(MASK), conf)["total"], renderer.fields)
    fine = output.depths.numpy().astype(np.float64)

    def loss(moved):
        return nerf_oracles.losses(oracle(renderer, NOISE, behind, moved, fine), TARGET, MASK, 0.3)["total"]

    assert_slopes(loss, params, gradients, 2e-4)
