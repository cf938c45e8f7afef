"""A radiance field on a grid with packed samples: its field, what light reaches, its cells; whole runs."""

import json
from dataclasses import replace

import method_oracles as grid_oracle
import numpy as np
import pytest
import trimesh
from config_samples import CONFS
from gradcheck import assert_grad_close, central_differences, some_entries
from runs import ROOT, SHORT, everything, run, saved
from trainings import assert_every_parameter_moves, assert_same_gradients, gradients, on_host, stopped_after, trainer_of

from models.conf import load_config
from models.config.strict import ConfigError
from models.estimators.occupancy import PATIENCE
from models.estimators.packed import Visible
from models.fields.conf import DensityGridConfig
from models.fields.grids import LARGEST_LOG, DensityGrid, density_of
from models.machine.backend import jt
from models.ops.source import NATIVE, REFERENCE, use
from models.training.trainer import Trainer

GRID = ("density=1", "levels=3", "coarsest=4", "finest=16", "log2_rows=8", "d_hidden=16", "d_feature=7")
COLOR = ("mode=no_normal", "d_in=6", "d_feature=7", "d_hidden=16", "n_layers=1")
SAMPLES = ("samples=512", "cells=16", "first_step=0.05", "last_step=0.04", "prune_every=1", "prune_from=0")
FAST = (
    "model.type=fast_nerf",
    *(f"model.density_grid.{value}" for value in GRID),
    *(f"model.rendering_network.{value}" for value in COLOR),
    *(f"model.radiance.{value}" for value in SAMPLES),
)
SETTINGS = (*SHORT, *FAST)


def model_of(*settings):
    """A model on the bundled scene, with its sampler."""
    overrides = (f"dataset.data_dir={ROOT}/data/demo", *SETTINGS, *settings)
    conf = load_config(ROOT / "confs/debug.conf", overrides=overrides)
    trainer = trainer_of(conf)
    return trainer.model, trainer.sampler, conf


def roughened(model, spread=1.0):
    """The same with features of a field that was trained for a while: every level has a say."""
    table = model.fields.fine.grid.table
    values = np.random.default_rng(2).normal(0, spread, table.shape).astype(np.float32)
    table.update(jt.array(values).detach())
    return model


# the field


@pytest.mark.slow
@pytest.mark.parametrize("form", [NATIVE, REFERENCE])
def test_density_and_feature_have_gradients_of_finite_differences(form):
    conf = DensityGridConfig(levels=3, coarsest=4, finest=16, log2_rows=8, d_hidden=16, d_feature=3)
    field, rng = DensityGrid(conf, np.random.default_rng(0)), np.random.default_rng(1)
    table = rng.normal(size=field.table.shape).astype(np.float32)
    field.table.update(jt.array(table).detach())
    points, a, b = (rng.uniform(-1, 1, (40, width)).astype(np.float32) for width in (3, 1, 3))
    layers = [(layer.weight.numpy(), layer.bias.numpy()) for layer in field.layers()]

    def loss64(values, last):
        found, _ = grid_oracle.field(points.astype(np.float64), values, [layers[0], (last, layers[1][1])], field.sizes)
        return (np.exp(found[:, :1]) * a).sum() + (found[:, 1:] * b).sum()

    with use(form):
        density, feature = field.evaluate(jt.array(points))
        loss = (density * jt.array(a)).sum() + (feature * jt.array(b)).sum()
        of_table, of_layer = (v.numpy() for v in jt.grad(loss, [field.table, field.layers()[1].weight]))
    values = [table.astype(np.float64), layers[1][0].astype(np.float64)]
    assert loss.item() == pytest.approx(loss64(*values), rel=1e-4)
    entries = np.sort(np.argsort(-np.abs(of_table.reshape(-1)))[:12])
    moved = central_differences(lambda x: loss64(x, values[1]), values[0], entries)
    assert_grad_close(of_table.reshape(-1)[entries], moved, name="table")
    entries = some_entries(values[1], 12)
    moved = central_differences(lambda x: loss64(values[0], x), values[1], entries)
    assert_grad_close(of_layer.reshape(-1)[entries], moved, name="layer")


def test_the_density_and_its_gradient_stay_finite():
    raw = jt.array(np.float32([-1e30, -20, -LARGEST_LOG, 0, 2, LARGEST_LOG, 200, 1e30]))
    density = density_of(raw)
    (slope,) = jt.grad(density.sum(), [raw])
    expected = np.exp(np.clip(raw.numpy().astype(np.float64), -LARGEST_LOG, LARGEST_LOG))
    np.testing.assert_allclose(density.numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(slope.numpy(), np.where(np.abs(raw.numpy()) <= LARGEST_LOG, expected, 0), rtol=1e-5)


# samples that light reaches


@pytest.mark.slow
def test_what_light_does_not_reach_changes_neither_loss_nor_gradient():
    model, sampler, _ = model_of("model.density_grid.density=20", "model.radiance.samples=4000")
    roughened(model)
    state = json.loads(json.dumps(sampler.state()))
    sifted = sampler.next()
    used = on_host(sifted).offsets[-1]
    sampler.restore(state)
    model.estimator.budget._has_hidden, model.estimator.visible = False, lambda traversed, *_: Visible(traversed)
    whole = sampler.next()
    assert len(whole) == len(sifted) and used < 0.8 * on_host(whole).offsets[-1]
    found = []
    for batch in (whole, sifted):
        objective = model.objective(batch, None, 3)
        loss = sum((term.mean() * term.weight for term in objective.terms.values()), jt.zeros(1))
        parameters = [value for network in model.networks.values() for value in network.parameters()]
        found.append([objective.output["rgb"].numpy(), *(value.numpy() for value in jt.grad(loss, parameters))])
    for ours, theirs in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6 * max(1.0, np.abs(theirs).max()))


@pytest.mark.slow
def test_losses_and_gradients_are_the_references_in_any_chunk():
    model, sampler, conf = model_of("train.mask_weight=0.1", "train.use_white_bkgd=true")
    trainer = Trainer(roughened(model), sampler, conf.train, np.random.default_rng(2))
    batch = sampler.next()
    one, split = (gradients(trainer, batch, chunk) for chunk in (64, 10))
    with use(REFERENCE):
        reference = gradients(trainer, batch, 64)
    assert "mask" in one[0] and all(value.any() for value in one[1].values())
    for other in (split, reference):
        assert_same_gradients(other, one, loss=1e-4, slope=1e-3)


@pytest.mark.slow
def test_pixels_off_the_object_are_held_to_the_background():
    model, sampler, _ = model_of("train.mask_weight=0.1", "train.use_white_bkgd=true")
    batch = sampler.next()
    half = (np.arange(len(batch)) % 2).astype(np.float32)[:, None]
    target = model.objective(replace(batch, mask=half), None, 3).output["target"]
    np.testing.assert_array_equal(target.numpy(), np.where(half > 0, batch.rgb, 1.0).astype(np.float32))
    model, sampler, _ = model_of("train.mask_weight=0")
    batch = sampler.next()
    without = model.objective(batch, None, 3)
    assert "mask" not in without.terms
    np.testing.assert_array_equal(without.output["target"].numpy(), batch.rgb)


# cells


@pytest.mark.slow
def test_a_cell_is_empty_after_some_looks_and_comes_back_after_one():
    model, _, _ = model_of("model.density_grid.density=1e-3")
    hull, occupied = model.estimator.grid.hull, []
    assert 0 < hull.sum() < 0.3 * hull.size  # the masks' hull, and no more
    for _ in range(PATIENCE):
        model.estimator.prune()
        occupied.append(int((model.estimator.grid.cells > 0).sum()))
    assert occupied == [hull.sum()] * (PATIENCE - 1) + [0]
    bias = model.fields.fine.grid.layers()[-1].bias
    bias.update((bias + 8.0).detach())
    model.estimator.prune()
    assert (model.estimator.grid.cells > 0).sum() == hull.sum()


@pytest.mark.slow
def test_before_cells_are_asked_none_is_empty():
    model, _, _ = model_of("model.radiance.prune_from=0.5")
    for _ in range(PATIENCE):
        model.estimator.empty_cells.update(lambda points: np.zeros(len(points)))
    assert not model.estimator.grid.cells.any()
    model.before_step(1)
    np.testing.assert_array_equal(model.estimator.grid.cells > 0, model.estimator.grid.hull)
    assert not model.estimator.empty_cells.empty.any()


# runs


@pytest.mark.slow
def test_a_run_goes_on_bit_for_bit_and_gives_pictures_and_meshes(tmp_path, capsys):
    """Six steps with a checkpoint after three."""
    trained = tmp_path / "whole"
    assert run(trained, settings=SETTINGS) == 0
    assert run(stopped_after(3, trained, tmp_path / "resumed"), "--is_continue", settings=SETTINGS) == 0
    first, second = saved(trained, 3), saved(trained, 6)
    assert everything(saved(tmp_path / "resumed", 6)) == everything(second)
    assert set(second.tensors) == {"density_grid", "color_network"}
    assert_every_parameter_moves(trained)
    assert second.buffers["looks"][0] > first.buffers["looks"][0] > 0
    image, mesh = ("validate_image", "--image", "2"), ("validate_mesh", "--resolution", "24")
    assert run(trained, "--mode", *image, settings=SETTINGS) == 0
    assert run(trained, "--mode", *mesh, settings=SETTINGS) == 2  # it is not that dense yet
    assert "never crosses -25" in capsys.readouterr().err
    assert run(trained, "--mode", *mesh, "--mcube_threshold", "0.5", settings=SETTINGS) == 0
    mesh = trimesh.load(trained / "meshes/00000006.ply")
    assert len(mesh.faces) > 0 and np.abs(mesh.vertices - (4.0, -7.0, 1.5)).max() < 2.5 * 1.1  # the world frame


def test_networks_that_do_not_fit_are_refused_by_their_key():
    for override, words in (
        ("model.rendering_network.d_feature=4", "must be model.density_grid.d_feature = 15"),
        ("model.rendering_network.mode=idr model.rendering_network.d_in=9", "idr: a radiance field has no normals"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_config(CONFS / "fast_nerf.conf", "x", override.split())
