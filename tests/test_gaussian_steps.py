"""Densification after a step runs on the device: values are read by the host only if the number changes."""

import gc
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from runs import ROOT
from synthetic_scene import write_scene
from test_gaussians import SMALL, splats
from trainings import trainer_of

from data.prepare.load import load_scene
from models.experiment import background
from models.machine.backend import jt
from models.methods.conf import load_config
from models.methods.gaussians.batch import PictureBatch
from models.methods.gaussians.pulled import Pulled
from models.structs import StepContext


@pytest.fixture
def deaf(monkeypatch):
    """A host that cannot read: within it each way to take a Var's numbers fails."""

    @contextmanager
    def within():
        with monkeypatch.context() as patch:
            for name in ("numpy", "item", "data", "fetch_sync"):
                patch.setattr(jt.Var, name, property(lambda _: pytest.fail("the host reads")))
            yield

    return within


def made(folder, name="gaussians", *settings):
    """A trainer on the bundled scene."""
    write_scene(folder / "scene")
    conf = load_config(ROOT / f"confs/{name}.conf", "x", [*SMALL, f"dataset.data_dir={folder}/scene", *settings])
    return trainer_of(conf, load_scene(conf.dataset, background(conf)))


@pytest.fixture
def trainer(tmp_path):
    """Of faint splats."""
    found = made(tmp_path, "gaussians", "model.gaussians.densify_every=100", "dataset.downscale=2")
    values = splats(60, opacity=-5.0, size=-1.0)
    values["opacities"][:20] = 2.0
    found.model.splats.fill(values)
    return found


@pytest.mark.parametrize("mask_weight", [0.0, 0.1])
def test_the_distortion_of_surfels_counts_with_masks_only(tmp_path, mask_weight):
    surfels = made(tmp_path, "surfels", f"train.mask_weight={mask_weight}")
    terms = surfels.model.objective(surfels.sampler.next(), None, StepContext(10, None)).terms
    assert "normal" in terms and ("distortion" in terms) == ("mask" in terms) == (mask_weight > 0)


def test_a_photograph_that_is_twice_in_a_batch_counts_twice(trainer):
    model, (picture,) = trainer.model, trainer.sampler.next().pictures
    batch = PictureBatch((picture, replace(picture, index=1)))
    watched = trainer.gradient_of(batch, None, chunk=1).watched
    model._count(watched)
    sums = model.pulled.buffers(60)
    assert sums["looks"].max() == 2 and set(sums["looks"]) <= {0, 2} and len(watched) == 2
    model.pulled.forget()


def test_opacities_and_sizes_count_in_the_loss(trainer):
    terms = trainer.model.objective(trainer.sampler.next(), None, trainer.context).terms
    opacities, sizes = trainer.model.splats.opacities.numpy(), trainer.model.splats.sizes.numpy()
    assert terms["opacity"].mean().item() == pytest.approx((1 / (1 + np.exp(-opacities))).mean(), rel=1e-5)
    assert terms["size"].mean().item() == pytest.approx(np.exp(sizes).mean(), rel=1e-5)
    assert terms["opacity"].weight == terms["size"].weight == 0.01


@pytest.mark.slow
def test_the_noise_of_a_step_moves_faint_splats_and_nothing_is_read_back(trainer, deaf):
    gc.collect()  # else Vars of earlier tests may be freed between the two counts
    model, live = trainer.model, {}
    means = model.splats.means.numpy()
    with deaf():
        model.after_step(None, trainer.context, {})
    moved = (model.splats.means.numpy() != means).any(axis=1)
    assert not moved[:20].any() and moved[20:].all()
    assert not model.splats.means.is_stop_grad()
    for step in range(1, 10):
        means = model.splats.means.numpy()
        trainer.step()
        trainer.settle()
        assert (model.splats.means.numpy() != means).any(axis=1)[:20].any()  # by the gradient alone
        model.before_step(trainer.context)
        live[step] = jt.liveness_info()
    assert live[4] == live[9]


@pytest.mark.slow
def test_a_refused_step_moves_no_splat(trainer, monkeypatch):
    trainer.step()
    assert trainer.settle()
    model, means = trainer.model, trainer.model.splats.means.numpy()
    original = model.taken
    monkeypatch.setattr(model, "taken", lambda rgb, view: original(rgb, view) * float("nan"))
    trainer.step()
    assert np.array_equal(model.splats.means.numpy(), means)
    monkeypatch.undo()
    trainer.step()
    assert trainer.settle() and (model.splats.means.numpy() != means).any(axis=1)[20:].all()


def test_what_pulls_at_splats_is_added_up_and_comes_back_from_a_checkpoint(deaf):
    rng, scale = np.random.default_rng(0), np.array([3.0, 2.0])
    gradients = rng.normal(size=(3, 50, 2)).astype(np.float32)
    radii = np.repeat(rng.integers(0, 2, (3, 50, 1)), 2, axis=2).astype(np.int32)
    gradients[:, 0], radii[:, 0] = np.nan, 0  # invisible Gaussians do not count
    pulled, resumed = Pulled(), Pulled()
    assert not any(array.any() for array in pulled.buffers(50).values()) and not pulled.mean(50).any()
    for gradient, radius in zip(gradients, radii, strict=True):
        with deaf():
            pulled.add(jt.array(gradient), jt.array(radius), tuple(scale))
        if not resumed.buffers(50)["looks"].any():
            resumed.load_buffers(pulled.buffers(50), 50)
        else:
            resumed.add(jt.array(gradient), jt.array(radius), tuple(scale))
    seen = radii[:, :, 0] > 0
    expected = np.where(seen, np.linalg.norm(gradients * scale, axis=2), 0.0).sum(axis=0) / seen.sum(axis=0).clip(1)
    np.testing.assert_allclose(pulled.mean(50), expected, rtol=1e-5)
    assert np.array_equal(resumed.mean(50), pulled.mean(50))
    with pytest.raises(ValueError, match="buffer pull"):
        resumed.load_buffers(pulled.buffers(50), 49)
    pulled.forget()
    assert pulled.mean(7).shape == (7,) and not pulled.mean(7).any()
