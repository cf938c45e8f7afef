"""A surface on a grid with packed samples: field, hull, cells, batches, objective, whole runs of confs/fast.conf."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from runs import ROOT, everything, saved
from trainings import assert_same_gradients, gradients, on_host, run_conf, stopped_after, trainer_of

from data.errors import UserError
from data.prepare.load import load_scene
from models.conf import load_config
from models.estimators.packed import PackedEstimator
from models.machine.backend import jt
from models.ops.march import EMPTY, OCCUPIED, SOLID
from models.ops.source import REFERENCE, use

CONF = ROOT / "confs/fast.conf"
TINY = (
    f"dataset.data_dir={ROOT}/data/demo",
    f"dataset.test_dir={ROOT}/data/demo/test",
    *(f"model.sdf_grid.{key}" for key in ("levels=5", "coarsest=4", "finest=32", "log2_rows=10")),
    *(f"model.{key}" for key in ("sdf_grid.d_hidden=16", "sdf_grid.d_feature=7")),
    *(f"model.color_grid.{key}" for key in ("levels=3", "coarsest=8", "finest=32", "log2_rows=10")),
    *(f"model.rendering_network.{key}" for key in ("d_feature=7", "d_hidden=16")),
    *(f"model.packed.{key}" for key in ("samples=1024", "cells=32", "first_step=0.08", "last_step=0.03")),
    "model.packed.prune_every=2",
    "model.inside.prune_from=0.3",
    "train.ray_chunk=4096",
    "train.batch_size=512",
    "train.report_freq=2",
)
SHORT = ("train.end_iter=8", "train.save_freq=4", "train.mesh_resolution=24")


def trained(*settings, steps=3):
    """A trainer on the bundled scene after some steps."""
    return trainer_of(load_config(CONF, "demo", [*TINY, *SHORT, *settings]), steps=steps)


@pytest.fixture(scope="module")
def trainer():
    """One that tests must not change, before patches count: these have tests of their own."""
    return trained("train.patches_from=1")


@pytest.mark.slow
def test_batches_fill_the_budget_with_rays_that_see_something(trainer, monkeypatch):
    monkeypatch.setattr(PackedEstimator, "random_share", 0.25)
    for _ in range(3):
        batch = trainer.sampler.next()
        samples = on_host(batch)
    used, estimator = samples.offsets[-1], trainer.model.estimator
    assert 0.5 * 1024 < used <= 0.75 * 1024 and len(samples.points) == 1024
    assert (np.diff(samples.offsets) > 0).mean() > 0.3 and len(np.unique(batch.view)) > 10
    x, y, z = np.floor((samples.points + 1) * 16).astype(int).T
    assert estimator.grid.hull[x, y, z].all()  # those of no ray too, which fill the hull
    assert np.ptp(samples.points[used:], axis=0).min() > 0.7 * np.ptp(estimator.grid.centres(), axis=0).min()
    ray = np.repeat(np.arange(len(batch)), np.diff(samples.offsets))
    scene = load_scene(load_config(CONF, "demo", TINY).dataset)
    towards = samples.points[:used] - scene.c2w[batch.view[ray], :3, 3]
    towards /= np.linalg.norm(towards, axis=1, keepdims=True)
    np.testing.assert_allclose(towards, samples.directions[:used], atol=1e-5)
    for index in range(0, len(batch), 17):  # the colours are those of the pixels that the rays go through
        view = batch.view[index]
        x, y, z = scene.intrinsics[view] @ scene.c2w[view, :3, :3].T @ batch.rays.directions[index].astype(float)
        column, row = round(x / z), round(y / z)
        np.testing.assert_allclose(batch.rgb[index], scene.images[view][row, column] / 255, atol=1e-6)


@pytest.mark.slow
def test_samples_of_rays_beside_the_object_are_free(trainer):
    batch = trainer.sampler.next()
    objective, samples = trainer.model.objective(batch, None, 0), on_host(batch)
    beside = np.repeat(batch.mask[:, 0] <= 0.5, np.diff(samples.offsets))
    distances = trainer.model.fields.sdf.bind().distance(batch.region.points).numpy()[: len(beside), 0]
    term = objective.terms["free"]
    assert term.count.item() == beside.sum() and 0 < beside.sum() < len(beside)
    assert term.total.item() == pytest.approx(np.maximum(-distances[beside].astype(float), 0).sum(), rel=1e-4)


def assert_slopes(trainer, batch, names):
    """The gradient of the loss by each of these parameters is a difference quotient along it."""
    found, named = gradients(trainer, batch, 10**6)[1], trainer.optimizer.named_parameters
    for name in names:
        gradient, start = found[name], named[name].numpy().copy()
        length = np.linalg.norm(gradient)
        step = 1e-3 / max(length, 0.05)  # float32, and kinks of ReLU: the loss changes by far more than float32 rounds
        losses = []
        for moved in (step * gradient / length, -step * gradient / length, 0):
            named[name].update(jt.array((start + moved).astype(np.float32)))
            named[name].start_grad()
            losses.append(trainer.gradient_of(batch, None, 10**6).losses["total"].item())
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(length, rel=0.15), name


@pytest.mark.slow
def test_the_objective_is_the_references_and_of_finite_differences(trainer):
    batch = trainer.sampler.next().part(0, 40)
    native = gradients(trainer, batch, 1000)
    with use(REFERENCE):
        reference = gradients(trainer, batch, 1000)
    assert_same_gradients(native, reference, loss=2e-4, slope=2e-3)
    assert_same_gradients(gradients(trainer, batch, 7), native, slope=1e-4)
    names = ("sdf_network_fine.table", "color_network_fine.table", "color_network_fine.lin1.weight")
    assert_slopes(trainer, trainer.sampler.next(), names)


@pytest.mark.slow
def test_free_space_pulls_where_the_mask_loss_no_longer_does():
    """Opaque everywhere and sharp: the mask loss has no gradient, the term of free space has."""
    trainer = trained(steps=0)
    fields = trainer.model.fields
    fields.sdf.lin1.bias.update(jt.array(np.r_[-3.0, np.zeros(7)].astype(np.float32)))
    fields.sharpness.variance.update(jt.array(np.float32([0.6])))
    batch = trainer.sampler.next()
    objective = trainer.model.objective(batch, None, 0)
    bias = fields.sdf.lin1.bias
    terms = (objective.terms[name].mean() for name in ("mask", "free"))
    mask, free = (jt.grad(term, [bias], retain_graph=True)[0].numpy()[0] for term in terms)
    assert abs(mask) < 1e-6 and free < -0.1


@pytest.mark.slow
def test_cells_that_lose_the_object_are_not_believed():
    trainer = trained("model.packed.prune_every=1", "model.inside.prune_from=0", steps=2)
    model = trainer.model
    hull = model.estimator.grid.hull
    model.estimator.grid.update(np.ones(hull.sum(), bool), np.zeros(hull.sum(), bool))
    assert model.estimator.pruner.lost_share() == 1.0
    assert on_host(trainer.sampler.next()).offsets[-1] == 0
    assert on_host(trainer.sampler.next()).offsets[-1] > 0  # once that was seen
    np.testing.assert_array_equal(model.estimator.grid.cells == OCCUPIED, hull)
    model.fields.sdf.lin1.bias.update(jt.array(np.r_[-5.0, np.zeros(7)].astype(np.float32)))  # all is solid
    model.before_step(trainer.finished_steps)
    np.testing.assert_array_equal(model.estimator.grid.cells == OCCUPIED, hull)


@pytest.mark.slow
def test_a_pruning_that_changes_much_is_accounted_for(trainer, caplog):
    estimator = trainer.model.estimator
    hull = estimator.grid.hull_cells
    for share, lines in ((0.04, 0), (0.5, 1), (0.52, 0)):  # of the cells, of which the last ones are empty
        caplog.clear()
        with pytest.MonkeyPatch.context() as patch, caplog.at_level("INFO", "models.estimators"):
            is_empty = np.arange(len(hull)) < share * len(hull)
            patch.setattr(
                estimator, "prune", lambda is_empty=is_empty: estimator.grid.update(is_empty, ~is_empty & False)
            )
            patch.setattr(estimator.pruner, "lost_share", lambda: 0.01)
            estimator.before_step(4)
        assert len(caplog.messages) == lines
        if lines:
            assert caplog.messages[0].startswith("step 4: 50% of the cells are empty, 0% inside the object; ")
    estimator.grid.open()


@pytest.mark.slow
def test_what_a_short_schedule_closed_a_longer_one_opens_again():
    short = trained("train.end_iter=4", steps=3)
    hull = short.model.estimator.grid.hull
    x = short.model.estimator.grid.centres()[:, 0]
    short.model.estimator.grid.update(x > 0, np.zeros(len(x), bool))
    checkpoint = short.checkpoint({})
    for end_iter, is_open in (("8", False), ("40", True)):  # cells are asked from three tenths of it on
        longer = trained(f"train.end_iter={end_iter}", "model.packed.prune_every=100", steps=0)
        longer.restore(checkpoint)
        longer.step()
        assert np.array_equal(longer.model.estimator.grid.cells == OCCUPIED, hull) == is_open


@pytest.mark.slow
def test_masks_that_leave_nothing_are_a_sentence():
    conf = load_config(CONF, "demo", [*TINY, "model.inside.hull_margin=0"])
    scene = load_scene(conf.dataset)
    masks = tuple(np.zeros_like(mask) for mask in scene.masks)
    for index, mask in enumerate(masks):
        mask[:3, : 3 + index % 2] = 255  # corners of different cells
    with pytest.raises(UserError, match="is empty in the region of interest"):
        trainer_of(conf, dataclasses.replace(scene, masks=masks))


def test_values_that_contradict_each_other_are_sentences():
    for setting, words in (
        ("model.sdf_grid.finest=2", r"model\.sdf_grid\.finest = 2: must not be below coarsest"),
        ("model.sdf_grid.d_feature=9", r"model\.sdf_grid\.d_feature"),
        ("model.packed.first_step=0.02", r"model\.packed\.last_step = 0\.03: must not be above first_step = 0\.02"),
        ("model.packed.samples=70", r"model\.packed\.samples = 70: a single ray may have 68 samples"),
    ):
        with pytest.raises(UserError, match=words):
            load_config(CONF, "demo", [*TINY, setting])


@pytest.mark.slow
def test_a_resumed_run_is_the_unbroken_one_and_gives_results(tmp_path):
    whole, settings = tmp_path / "whole", (*TINY, *SHORT)
    assert run_conf(CONF, whole, "--case", "demo", settings=settings) == 0
    folder = stopped_after(4, whole, tmp_path / "resumed")
    assert run_conf(CONF, folder, "--case", "demo", "--is_continue", settings=settings) == 0
    assert everything(saved(whole, 8)) == everything(saved(folder, 8))
    cells, log = saved(whole, 8).buffers["cells"], (whole / "logs/train.log").read_text()
    assert re.search(r"INFO step [46]: \d+% of the cells are empty, \d+% inside the object; \d+ of \d+ test rays", log)
    assert set(np.unique(cells)) <= {EMPTY, OCCUPIED, SOLID} and (cells == EMPTY).any()
    for mode in (("validate_image",), ("validate_mesh", "--resolution", "24"), ("plan",)):
        assert run_conf(CONF, whole, "--case", "demo", "--mode", *mode, settings=settings) == 0, mode


@pytest.mark.slow
def test_buffers_that_no_training_makes_are_refused(trainer):
    model = trainer.model
    good = model.buffers()
    for name, value, words in (
        ("levels", np.array([10**9]), "not those of a training"),
        ("cells", np.full_like(good["cells"], 7), "not those of a training"),
        ("hull", good["hull"][:16, :16, :16], r"16 entries along a side, the conf asks for 32 \(model.packed.cells\)"),
    ):
        with pytest.raises(ValueError, match=words):
            model.load_buffers(good | {name: value})
