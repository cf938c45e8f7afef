"""Densification after a step runs on the device: values are read by the host only if the number changes."""

import gc
from contextlib import contextmanager

import numpy as np
import pytest
from runs import ROOT
from synthetic_scene import write_scene
from test_gaussians import SMALL, splats
from trainings import trainer_of

from data.prepare.load import load_scene
from models.conf import load_config
from models.machine.backend import jt
from models.methods.gaussians.terms import LOSSES
from models.rendering.loss_table import Loss
from models.results.experiment import background
from models.structs import Term


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
    found = made(tmp_path, "gaussians", "dataset.downscale=2")
    values = splats(60, opacity=-5.0, size=-1.0)
    values["opacities"][:20] = 2.0
    found.model.splats.fill(values)
    return found


@pytest.mark.parametrize("mask_weight", [0.0, 0.1])
def test_the_distortion_of_surfels_counts_with_masks_only(tmp_path, mask_weight):
    surfels = made(tmp_path, "surfels", f"train.mask_weight={mask_weight}")
    terms = surfels.model.objective(surfels.sampler.next(), None, 10).terms
    assert "normal" in terms and ("distortion" in terms) == ("mask" in terms) == (mask_weight > 0)


def test_opacities_and_sizes_count_in_the_loss(trainer):
    terms = trainer.model.objective(trainer.sampler.next(), None, trainer.finished_steps).terms
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
        model.after_step(None, trainer.finished_steps)
    moved = (model.splats.means.numpy() != means).any(axis=1)
    assert not moved[:20].any() and moved[20:].all()
    assert not model.splats.means.is_stop_grad()
    for step in range(1, 10):
        means = model.splats.means.numpy()
        trainer.step()
        trainer.finish_step()
        assert (model.splats.means.numpy() != means).any(axis=1)[:20].any()  # by the gradient alone
        model.before_step(trainer.finished_steps)
        live[step] = jt.liveness_info()
    assert live[4] == live[9]


@pytest.mark.slow
def test_a_refused_step_moves_no_splat(trainer, monkeypatch):
    trainer.step()
    assert trainer.finish_step()
    model, means = trainer.model, trainer.model.splats.means.numpy()
    monkeypatch.setitem(LOSSES, "color", Loss(lambda rendered: Term(rendered.rgb.sum() * float("nan"), 1.0)))
    trainer.step()
    assert np.array_equal(model.splats.means.numpy(), means)
    monkeypatch.undo()
    trainer.step()
    assert trainer.finish_step() and (model.splats.means.numpy() != means).any(axis=1)[20:].all()
