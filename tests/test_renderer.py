"""The renderer as a whole, against a float64 statement of it on tiny networks with random weights."""

import dataclasses
from itertools import product

import numpy as np
import oracles
import pytest
from config_samples import changed
from dense_renderer import oracle_model, oracle_params, random_rays, tiny_renderer, training_losses
from forms import CUDA_FORMS, FORMS, in_form
from gradcheck import assert_grad_close, central_differences, some_entries

from data.rays import Rays
from models.estimators.base import upload
from models.fields.state import import_state, named_parameters
from models.machine.backend import jt
from models.ops.source import NATIVE, REFERENCE

COUNT = 5
RAYS = random_rays(COUNT)
WHITE = np.ones(3, np.float32)
NOISE_RNG = np.random.default_rng(4)
TRAIN = dataclasses.replace(changed().train, igr_weight=0.1, mask_weight=0.2)
TARGET = NOISE_RNG.random((COUNT, 3), dtype=np.float32)
MASK = np.float32([1, 0, 1, 1, 0])[:, None]
# name -> sections outside, ratio of the annealing, colour behind everything
SETTINGS = {
    "object only": (0, 1.0, None),
    "annealed, on white": (0, 0.3, WHITE),
    "background": (4, 1.0, None),
    "background, annealed, on white": (4, 0.0, WHITE),
}


def noise(n_outside):
    rng, shapes = np.random.default_rng(4), {"inside": (COUNT, 1), "outside": (COUNT, n_outside)}
    return {name: rng.random(shape, dtype=np.float32) for name, shape in shapes.items()}


def renderer_with_soft_surface(n_outside):
    """inv_s = 12 instead of 20, so that float32 is well-conditioned; opacities of 0.35 to 0.99 with this seed."""
    renderer = tiny_renderer(2, n_outside=n_outside)
    import_state(renderer.fields.sharpness, {"variance": np.float32(0.25)})
    return renderer


def oracle_image(renderer, depths, draws, ratio, behind, params=None, rays=RAYS):
    """The same image by the oracle, at the renderer's own depths: placing them is ill-conditioned in float32."""
    exact, conf, beyond = Rays(*(value.astype(np.float64) for value in vars(rays).values())), renderer.conf, None
    if conf.n_outside:
        jitter = None if draws is None else draws["outside"]
        beyond = oracles.outside_depths(exact.far, conf.n_outside, conf.n_samples, jitter)
    params = oracle_params(renderer) if params is None else params
    return oracles.render(params, oracle_model(renderer), exact, depths, beyond, ratio, behind)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("noisy", [False, True], ids=["even", "jitter"])
def test_all_outputs_agree_with_the_oracle(name, noisy):
    n_outside, ratio, behind = SETTINGS[name]
    renderer, draws = renderer_with_soft_surface(n_outside), noise(n_outside) if noisy else None
    output = renderer.render(upload(RAYS), draws, ratio, behind)
    expected = oracle_image(renderer, output.depths.numpy().astype(np.float64), draws, ratio, behind)
    for field, value in expected.items():
        actual = getattr(output, field).numpy()
        assert actual.shape == value.shape, field
        np.testing.assert_allclose(actual, value, atol=1e-5, err_msg=field)
    np.testing.assert_allclose(output.inv_s.numpy(), [np.exp(2.5)], rtol=1e-5)
    assert output.rgb.numpy().std(axis=0).max() > 0.01  # rays that all see the same would compare little


BESIDE = Rays(RAYS.origins, np.roll(RAYS.directions, 1, axis=1), RAYS.near, RAYS.far)  # most miss the sphere
THROUGH = Rays(-3.0 * RAYS.directions, RAYS.directions, *(np.full((COUNT, 1), t, np.float32) for t in (2.1, 3.7)))
# name -> rays, and the share of intervals outside the sphere
SCENES = {
    "mixed": (RAYS, 0.2, 0.8),
    "beside the sphere": (BESIDE, 0.8, 1.0),
    "inside it": (THROUGH, 4 / 20, 4 / 20),
    "one ray": (RAYS.at(slice(1)), 0.2, 0.8),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SCENES)
def test_the_background_is_evaluated_only_outside_the_sphere(name, form):
    (rays, low, high), renderer, asked = SCENES[name], renderer_with_soft_surface(4), []
    network = renderer.estimator.nerf
    renderer.estimator.nerf = lambda *given: asked.append(given[2].numpy()) or network(*given)
    with in_form(form):
        output = renderer.render(upload(rays))
        inside = output.inside_sphere.numpy() > 0
        expected = oracle_image(renderer, output.depths.numpy().astype(np.float64), None, 1.0, None, rays=rays)
        for field in ("rgb", "opacity", "weights"):
            np.testing.assert_allclose(getattr(output, field).numpy(), expected[field], atol=1e-5, err_msg=field)
    outside = np.hstack([~inside, np.ones((len(inside), 4), bool)])
    np.testing.assert_array_equal(asked[-1].reshape(outside.shape), outside)
    assert low <= outside.mean() <= high


# gradients


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form"),
    [("annealed, on white", REFERENCE), *product(("annealed, on white", "background"), (NATIVE, CUDA_FORMS[-1]))],
)
def test_weight_gradients_of_the_loss_agree_with_finite_differences(name, form):
    n_outside, ratio, behind = SETTINGS[name]
    renderer = renderer_with_soft_surface(n_outside)
    with in_form(form):
        output = renderer.render(upload(RAYS), None, ratio, behind)
        total = training_losses(output, jt.array(TARGET), jt.array(MASK), TRAIN)["total"]
        gradients = gradients_of(total, renderer.fields)
    depths, params = output.depths.numpy().astype(np.float64), oracle_params(renderer)

    def loss(moved):
        image = oracle_image(renderer, depths, None, ratio, behind, moved)
        return oracles.losses(image, TARGET, MASK, TRAIN.igr_weight, TRAIN.mask_weight)["total"]

    assert_slopes(loss, params, gradients, 1e-4)


def gradients_of(total, fields):
    """By network and name of the parameter."""
    fields = {network: field for network, field in vars(fields).items() if field is not None}
    parameters = {(one, leaf): var for one, field in fields.items() for leaf, var in named_parameters(field).items()}
    return dict(zip(parameters, jt.grad(total, list(parameters.values())), strict=True))


def assert_slopes(loss, params, gradients, tolerance):
    """The gradient of each parameter is that of finite differences of `loss(params)`."""
    for (network, leaf), gradient in gradients.items():
        actual, at = gradient.numpy(), f"{network}.{leaf}"
        scale = float(np.abs(actual).max())
        assert scale > 0.0, f"{at} receives no gradient"

        def moved(value, network=network, leaf=leaf):
            return loss(params | {network: params[network] | {leaf: value}})

        entries = some_entries(actual, 2, seed=len(leaf))
        expected = central_differences(moved, params[network][leaf], entries)
        assert_grad_close(actual.ravel()[entries], expected, rtol=tolerance, atol=tolerance * scale, name=at)
