"""The terms of the training loss: zero at the truth, right gradients, finite for empty masks."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from config_samples import changed
from dense_renderer import training_losses
from gradcheck import assert_grad_close, central_differences

from models.machine.backend import jt
from models.methods import volume
from models.methods.gaussians.terms import LOSSES as OF_GAUSSIANS
from models.rendering.losses import LOSSES, mask_term, masked_psnr, mean_term, robust_counts
from models.rendering.protocol import Rendered
from models.structs import SurfaceOutput, Term

RAYS, SECTIONS = 6, 5
RNG = np.random.default_rng(0)
RGB, TARGET = (RNG.random((RAYS, 3)).astype(np.float32) for _ in range(2))
MASK = np.float32([1, 0, 1, 1, 0, 1])[:, None]
EMPTY = np.zeros_like(MASK)
OPACITY = RNG.uniform(0.05, 0.95, (RAYS, 1)).astype(np.float32)
GRADIENT = RNG.normal(size=(RAYS, SECTIONS, 3)).astype(np.float32)
NEAR = (RNG.random((RAYS, SECTIONS)) < 0.7).astype(np.float32)
TRAIN = dataclasses.replace(changed().train, igr_weight=0.1, mask_weight=0.3)


def value_of(result):
    """A term's mean, or a number itself."""
    return result.mean() if isinstance(result, Term) else result


def loss(function, *arrays):
    result = value_of(function(*map(jt.array, arrays)))
    assert tuple(result.shape) == (1,)
    return float(result.item())


def slope(function, argument, *others):
    x = jt.array(argument)
    return jt.grad(value_of(function(x, *map(jt.array, others))), x).numpy()


def rendered(order=slice(None)):
    """The values that the losses read of a rendering, its rays in a given order."""
    rgb, opacity, gradient, near = (jt.array(array[order].copy()) for array in (RGB, OPACITY, GRADIENT, NEAR))
    samples = SimpleNamespace(near_sphere=near, per_ray=SECTIONS, coarse=None)
    geometry = SimpleNamespace(gradient=gradient.reshape((-1, 3)))
    return SimpleNamespace(rendering=SurfaceOutput(rgb, opacity, None, samples, None, geometry, None))


def training_terms(order=slice(None), train=TRAIN, mask=MASK):
    found = training_losses(rendered(order), jt.array(TARGET[order].copy()), jt.array(mask[order].copy()), train)
    return {name: float(value.item()) for name, value in found.items()}


def color_term(rgb, target, counts):
    return mean_term("ABSOLUTE", rgb, target, counts)


def eikonal_term(gradient, counts):
    return mean_term("UNIT_LENGTH", gradient, None, counts)


# eikonal


def test_the_gradient_of_the_eikonal_loss_is_finite_differences_or_zero():
    def energy(x):
        error = (np.linalg.norm(x, axis=2) - 1.0) ** 2
        return float((NEAR * error).sum() / (NEAR.sum() + 1e-5))

    expected = central_differences(energy, GRADIENT)
    assert_grad_close(slope(eikonal_term, GRADIENT, NEAR).ravel(), expected, rtol=1e-5)
    assert not slope(eikonal_term, np.zeros_like(GRADIENT), NEAR).any()


# mask


def test_the_mask_loss_is_finite_with_the_gradient_of_finite_differences():
    assert loss(mask_term, 1.0 - MASK, MASK) == pytest.approx(-np.log(1e-3), rel=1e-3)
    expected = central_differences(lambda p: oracles.cross_entropy(p, MASK), OPACITY)
    assert_grad_close(slope(mask_term, OPACITY, MASK).ravel(), expected, rtol=1e-5)


# together


def test_the_training_loss_and_its_terms_agree_with_the_oracle():
    image = {"rgb": RGB, "opacity": OPACITY, "sdf_gradient": GRADIENT, "near_sphere": NEAR}
    expected = oracles.losses(image, TARGET, MASK, TRAIN.igr_weight, TRAIN.mask_weight)
    assert training_terms() == pytest.approx(expected, rel=1e-5)
    expected = oracles.psnr(*(array.astype(np.float64) for array in (RGB, TARGET, MASK)))
    assert loss(masked_psnr, RGB, TARGET, MASK) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("scale", [0.0, 0.2])
def test_rays_far_off_count_less_where_the_conf_says_so(scale, monkeypatch):
    monkeypatch.setattr(volume, "terms_of", lambda losses, weights, rendered, step, train: rendered.counts)
    given = Rendered(SimpleNamespace(rgb=jt.array(RGB)), None, jt.array(TARGET), jt.array(MASK), None, None, 0)
    method = SimpleNamespace(train=dataclasses.replace(TRAIN, robust_scale=scale), weights={})
    off = np.abs(RGB - TARGET).max(axis=1, keepdims=True)
    expected = MASK / (1 + (off / scale) ** 2) if scale else MASK
    np.testing.assert_allclose(volume.VolumeModel.terms(method, given).numpy(), expected, rtol=1e-5)


def test_rays_far_off_count_less_by_the_weights_of_cauchys_loss():
    scale, off = 0.2, np.abs(RGB.astype(np.float64) - TARGET)
    weights = MASK / (1 + (off.max(axis=1, keepdims=True) / scale) ** 2)
    robust = lambda rgb, target, mask: color_term(rgb, target, robust_counts(mask, rgb, target, scale))  # noqa: E731
    assert loss(robust, RGB, TARGET, MASK) == pytest.approx((weights * off).sum() / weights.sum(), rel=1e-4)
    expected = weights * np.sign(RGB - TARGET) / weights.sum()  # the weights are constants
    assert_grad_close(slope(robust, RGB, TARGET, MASK), expected, rtol=1e-4)


def test_an_empty_mask_or_sphere_gives_zero_and_finite_gradients():
    for given in ((color_term, RGB, TARGET, EMPTY), (eikonal_term, GRADIENT, np.zeros_like(NEAR))):
        assert loss(*given) == 0.0 and not slope(*given).any()
    assert np.isfinite(list(training_terms(mask=EMPTY).values())).all()


# the tables


def test_each_weight_in_a_conf_is_that_of_a_loss_and_follows_its_schedule():
    keys = {loss.key or f"{name}_weight" for table in (LOSSES, OF_GAUSSIANS) for name, loss in table.items()}
    weights = {field.name for field in dataclasses.fields(TRAIN) if field.name.endswith("_weight")}
    assert weights < keys and keys - weights == {"color_weight", "color_mse_weight", "coarse_mse_weight"}
    train = dataclasses.replace(TRAIN, end_iter=10, patches_from=0.5)
    factors = [LOSSES["patches"].factor("patches", step, train) for step in (4, 5)]
    factors += [OF_GAUSSIANS["normal"].factor("normal", step, train) for step in (2, 3)]
    assert factors == [0.0, 1.0, 0.0, 1.0]
