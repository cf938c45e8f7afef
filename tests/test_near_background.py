"""confs/fast.conf: what lies between cameras and region, cells that rays would lose the surface by, SfM points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_scene import write_scene
from test_fast_background import CONF, OPEN, rays_from, trained, trainer_conf, unit
from test_fast_neus import SHORT
from trainings import on_host, run_conf, trainer_of

from data.parsed_scene import SparsePoints
from data.prepare.load import load_scene
from models.estimators import visibility
from models.estimators.background import NEAR_SHARE
from models.estimators.conf import PackedConfig
from models.estimators.visibility import ALL, lost_share
from models.machine.backend import jt
from models.methods.registry import build_model
from models.ops.march import compact
from models.ops.outside import BEFORE, BEHIND, occupied

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trainer():
    """One that tests must not change."""
    return trained()


def test_what_lies_on_the_way_to_the_region_absorbs_little_at_first():
    background = trained(steps=0).model.estimator.background
    for z, share in ((-0.7, NEAR_SHARE), (0.7, 1)):
        point, along = jt.array(np.float32([[0, 0, z]])), jt.array(np.float32([[0, 0, 1]]))
        alpha, density = background.evaluate(point, along)[0], background.density.evaluate(point)[0]
        expected = 1 - np.exp(-density.item() * background.conf.section * share)
        assert alpha.item() == pytest.approx(expected, rel=1e-4)


def test_no_sample_lies_before_the_region_where_few_photographs_see_it(trainer):
    background, scene = trainer.model.estimator.background, load_scene(trainer_conf().dataset)
    rays = rays_from(np.repeat(scene.c2w[:1, :3, 3], 4, axis=0), np.zeros((4, 3)))
    whole, counts = background.is_shared, []
    for background.is_shared in (np.ones_like(whole), np.zeros_like(whole), whole):
        background._states = None
        jitter, conf = np.full((4, 1), 0.5, np.float32), background.conf
        found, is_before = occupied(rays, jitter, background.states.numpy(), conf.section, background.grid.near_plane)
        is_before = is_before.numpy()[: found.offsets.numpy()[-1]]
        counts.append((int(is_before.sum()), int((~is_before).sum())))
    assert counts[0][0] >= counts[2][0] >= counts[1][0] == 0 < counts[0][0]
    assert counts[0][1] == counts[1][1] == counts[2][1] > 0


def test_results_sample_before_the_region_where_the_training_did(trainer):
    conf = trainer_conf()
    model = build_model(conf.model, conf.train, np.random.default_rng(0), trainer.model.plan)
    model.see(load_scene(conf.dataset))
    model.load_buffers(trainer.model.buffers())
    states = [one.estimator.background.states.numpy() for one in (model, trainer.model)]
    np.testing.assert_array_equal(*states)
    assert (states[0] == BEHIND).any() and (states[0] == BEFORE).any()


def test_pruning_that_rays_would_lose_the_surface_by_is_put_off(monkeypatch):
    estimator = trained("model.open.prune_from=0", "model.sdf_grid.bias=0.5", steps=0).model.estimator
    grid = estimator.grid
    seen, kept = estimator.probe_opacities(), grid.cells
    assert (seen > 0.5).mean() > 0.2
    with monkeypatch.context() as empty:  # a field that takes everything for empty
        empty.setattr(estimator, "distances", lambda points: np.ones((len(points), 1), np.float32))
        empty.setattr(estimator, "probe_opacities", lambda: seen if grid.cells is kept else 0 * seen)
        estimator.prune()
        assert grid.cells is kept
    estimator.prune()
    assert (grid.cells != kept).any() and lost_share(seen, estimator.probe_opacities()) <= 0.02


def test_after_a_collapse_no_cell_is_pruned_until_the_step_it_was_seen_at(trainer):
    assert trainer.model.after_collapse(5) == ", and no cells are pruned before step 5"
    assert trainer.model.estimator.pruner.first_step == 5 and trainer.model.buffers()["prunes_after"] == 5


def shells(*radii):
    """300 SfM points on a sphere of each radius."""
    directions = unit(np.random.default_rng(0).normal(size=(300, 3)))
    xyz = np.concatenate([radius * directions for radius in radii])
    return SparsePoints(xyz, np.full(len(xyz), 5), np.ones(len(xyz)), np.zeros((len(xyz), 3), np.uint8))


def test_points_of_structure_from_motion_draw_the_surface():
    conf = trainer_conf("train.points_weight=1")
    trainer = trainer_of(conf, replace(load_scene(conf.dataset), points=shells(0.8, 2.4)))  # the second one is outside
    estimator = trainer.model.estimator
    estimator.before_step(0)
    batch = trainer.sampler.next()
    anchors = on_host(batch).points[batch.is_anchor().numpy()[:, 0] > 0]
    assert batch.anchors == 64 and len(anchors) == 64
    np.testing.assert_allclose(np.linalg.norm(anchors, axis=1), 0.8, atol=1e-6)
    away = float(np.abs(estimator.distances(anchors)).mean())
    term = trainer.model.objective(batch, None, trainer.finished_steps).terms["points"]
    assert term.mean().item() == pytest.approx(away, rel=1e-3) and away > 0.2
    assert sum(batch.part(at, at + 7).is_anchor().numpy().sum() for at in range(0, len(batch), 7)) == 64


@pytest.mark.parametrize(("distance", "turn", "inside"), [(0.5, -1, 1), (0.95, -1, -1)])
def test_a_scene_photographed_from_within_begins_inside_a_sphere(distance, turn, inside):
    """The signed distance at the cameras is positive there; other scenes begin with a ball at the centre."""
    conf = trainer_conf("train.points_weight=1")
    scene = replace(load_scene(conf.dataset), points=shells(0.8))
    c2w = scene.c2w @ np.diag([turn, 1, turn, 1])
    c2w[:, :3, 3] = distance * unit(c2w[:, :3, 3])
    estimator = trainer_of(conf, replace(scene, c2w=c2w)).model.estimator
    assert np.sign(estimator.distances(np.zeros((1, 3), np.float32))[0, 0]) == inside
    assert inside < 0 or (estimator.distances(c2w[:, :3, 3].astype(np.float32)) > 0).all()


def test_without_masks_the_step_size_is_at_least_the_blur_of_the_surface(monkeypatch):
    monkeypatch.setattr(PackedConfig, "steps_until", 0.01)
    settings = ("model.packed.prune_every=2", "model.packed.last_step=0.01")
    trainer, resumed = (trained(*settings, "model.open.blur_step=1", steps=steps) for steps in (2, 0))
    blur = 1 / trainer.model.fields.sharpness().item()
    assert 0.01 < blur < trainer.model.estimator.conf.first_step
    for _ in range(2):  # the second step keeps the value of the first
        trainer.step()
        assert trainer.model.estimator.step_size == pytest.approx(blur, rel=1e-6)
    resumed.restore(trainer.checkpoint({}))
    trainer.step(), resumed.step()
    assert resumed.model.estimator.step_size == trainer.model.estimator.step_size
    for setting, size in (("blur_step=0", 0.01), ("blur_step=1e6", trainer.model.estimator.conf.first_step)):
        model = trained(*settings, f"model.open.{setting}", steps=3).model.estimator
        assert model.step_size == pytest.approx(size, rel=1e-6)
        assert model.resolving_step_size() == pytest.approx(size, rel=1e-2)


def test_with_masks_the_step_size_is_scheduled_and_the_bound_hides_no_nan(monkeypatch):
    monkeypatch.setattr(PackedConfig, "steps_until", 0.01)
    trainer = trained("train.mask_weight=0.5", "model.open.blur_step=1e6")
    estimator, variance = trainer.model.estimator, trainer.model.fields.sharpness.variance
    assert estimator.step_size == estimator.conf.last_step == estimator.resolving_step_size()
    for bad in (np.nan, np.inf):
        variance.update(jt.array(np.float32([bad])))
        variance.start_grad()
        trainer.step()
        assert not trainer.finish_step()


def test_inv_s_is_bounded_where_photographs_show_the_rendered_background():
    settings = ("model.packed.last_step=0.4", "model.packed.first_step=0.4")
    with_masks = (*settings, "train.mask_weight=0.5")
    white = (*with_masks, "train.use_white_bkgd=true")  # the photographs are black outside the masks
    for free in (settings, white):
        assert trained(*free).model.sharpness() > 15  # it begins with exp(3) = 20
    assert trained(*white, "model.inside.largest_inv_s=4").model.sharpness() < 11
    bounded = trained(*with_masks)
    assert bounded.model.sharpness() == pytest.approx(10, rel=0.1)  # 4 / 0.4, and the step after it
    bounded.model.fields.sharpness.reset(5)
    bounded.step()
    assert bounded.model.sharpness() == pytest.approx(5, rel=0.1)


def test_images_omit_only_samples_of_negligible_weight(monkeypatch):
    scene, model = load_scene(trainer_conf().dataset), trained().model
    rays = rays_from(scene.c2w[:1, :3, 3].repeat(64, 0), 0.5 * unit(np.random.default_rng(0).normal(size=(64, 3))))
    sampled, compacting = [], lambda found, is_kept, count: sampled.append(count) or compact(found, is_kept, count)
    monkeypatch.setattr(visibility, "compact", compacting)
    seen = model.view(rays, 3)
    monkeypatch.setattr(visibility, "LEAST_WEIGHT", ALL)
    whole = model.view(rays, 3)
    assert sampled[0] < sampled[1]
    for name in ("rgb", "opacity", "normal"):
        np.testing.assert_allclose(getattr(seen, name), getattr(whole, name), atol=1 / 255, err_msg=name)


def test_a_run_goes_on_with_masks_or_without_as_it_began(tmp_path, capsys):
    write_scene(tmp_path / "scene", n_views=8)
    settings = (*OPEN, *SHORT, f"dataset.data_dir={tmp_path}/scene", 'dataset.test_dir=""')
    settings += ("dataset.masks_from_backdrop=False",)
    call, weighted = (CONF, tmp_path / "masked", "--case", "x"), (*settings, "train.mask_weight=0.5")
    assert run_conf(*call, settings=weighted) == 0
    assert run_conf(*call, "--is_continue", settings=(*settings, "train.mask_weight=0")) == 2
    assert "was trained with masks, and scene is now used without masks" in capsys.readouterr().err
