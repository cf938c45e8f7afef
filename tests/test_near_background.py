"""confs/fast.conf: what lies between cameras and region, cells that rays would lose the surface by, SfM points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import rigs
from packed_samples import on_host
from test_fast_background import rays_from, trained, trainer_conf, unit
from trainings import trainer_of

from data.parsed_scene import SparsePoints
from data.scenes.load import load_scene
from models.estimators import packed
from models.estimators.background import NEAR_SHARE, _seen_share
from models.estimators.visibility import ALL, lost_share
from models.machine.backend import jt
from models.methods.registry import build_model
from models.ops.compact import compact
from models.structs import StepContext

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trainer():
    """One that tests must not change."""
    return trained()


def test_what_lies_on_the_way_to_the_region_absorbs_little_at_first():
    background = trained(steps=0).model.estimator.background
    before, behind = np.float32([[0, 0, -0.7]]), np.float32([[0, 0, 0.7]])
    along = np.float32([[0, 0, 1]])
    alpha = [background.evaluate(jt.array(point), jt.array(along))[0].item() for point in (before, behind)]
    density = [background.density.at_weights().evaluate(jt.array(p)).density.item() for p in (before, behind)]
    section = background.conf.section
    expected = [1 - np.exp(-density[0] * section * NEAR_SHARE), 1 - np.exp(-density[1] * section)]
    np.testing.assert_allclose(alpha, expected, rtol=1e-4)


def test_no_sample_lies_before_the_region_where_few_photographs_see_it(trainer):
    background, scene = trainer.model.estimator.background, load_scene(trainer_conf().dataset)
    origin = scene.c2w[:1, :3, 3]
    rays = rays_from(np.repeat(origin, 4, axis=0), np.zeros((4, 3)))
    jitter = np.full((4, 1), 0.5, np.float32)
    whole = background.is_shared
    counts = []
    for is_shared in (np.ones_like(whole), whole, np.zeros_like(whole)):
        background.is_shared = is_shared
        found, is_before = background.occupied(rays, jitter)
        is_before = is_before.numpy()[: found.offsets.numpy()[-1]]
        counts.append((int(is_before.sum()), int((~is_before).sum())))
    background.is_shared = whole
    assert counts[0][0] >= counts[1][0] >= counts[2][0] == 0 < counts[0][0]
    assert counts[0][1] == counts[1][1] == counts[2][1] > 0


def test_only_images_that_see_a_cell_before_the_region_count():
    sides = [[1, 0.02 * index, 0.0] for index in range(3)] + [[-1, 0.02 * index, 0.0] for index in range(7)]
    scene = rigs.textured_scene(rigs.around(sides, distance=3.0, middle=np.zeros(3)))
    points = np.array([[1.2, 0, 0], [-1.2, 0, 0], [0, 1.05, 0], [0, 0, 9.0], [3.5, 0, 0]])
    np.testing.assert_allclose(_seen_share(points, scene)[[0, 1, 3, 4]], [0.3, 0.7, 0.0, 0.0])


def test_pruning_that_rays_would_lose_the_surface_by_is_put_off():
    trainer = trained("model.background.prune_from=0", "model.background.bias=0.5", steps=0)
    model = trainer.model.estimator
    seen = model.probe_opacities()
    assert (seen > 0.5).mean() > 0.2
    kept = model.grid.cells
    true, model.trained = model.trained, lambda points: np.ones((len(points), 1), np.float32)
    probed, model.probe_opacities = model.probe_opacities, lambda: seen if model.grid.cells is kept else 0 * seen
    model.prune()  # of a field that takes everything for empty
    assert model.grid.cells is kept
    model.trained, model.probe_opacities = true, probed
    model.prune()
    assert (model.grid.cells != kept).any() and lost_share(seen, model.probe_opacities()) <= 0.02


def test_a_checkpoint_of_the_version_before_shows_what_it_showed(trainer):
    model = trainer.model
    buffers = {
        name: value for name, value in model.buffers().items() if "near_share" not in name and "prunes" not in name
    }
    own = model.buffers()
    model.load_buffers(buffers)
    assert model.estimator.background.near_share == 1 and model.estimator.prunes_after == 0
    model.load_buffers(own)
    assert model.estimator.background.near_share == pytest.approx(NEAR_SHARE)


def test_after_a_collapse_no_cell_is_pruned_until_the_step_it_was_seen_at():
    model = trained("model.background.prune_from=0", steps=2).model
    assert model.after_collapse(5) == ", and no cells are pruned before step 5"
    assert model.estimator.first_pruning == 5 and model.buffers()["prunes_after"] == 5


def shells(*radii):
    """300 SfM points on a sphere of each radius."""
    directions = unit(np.random.default_rng(0).normal(size=(300, 3)))
    xyz = np.concatenate([radius * directions for radius in radii])
    return SparsePoints(xyz, np.full(len(xyz), 5), np.ones(len(xyz)), np.zeros((len(xyz), 3), np.uint8))


def test_points_of_structure_from_motion_draw_the_surface():
    settings = ("model.packed.points_weight=1", "model.packed.points_until=0.5", "model.background.points_from=0.25")
    trainer = trained(*settings, steps=0)
    model, sampler, estimator = trainer.model, trainer.sampler, trainer.model.estimator
    estimator.fit(replace(load_scene(trainer_conf().dataset), points=shells(0.8, 2.4)))  # the second one is outside
    assert estimator.points is None
    estimator.before_step(1)
    assert estimator.points is None
    estimator.before_step(2)  # a quarter of eight steps
    batch = sampler.next()
    anchors = on_host(batch).points[batch.is_anchor().numpy()[:, 0] > 0]
    assert batch.anchors[0] == 64 and len(anchors) == 64
    np.testing.assert_allclose(np.linalg.norm(anchors, axis=1), 0.8, atol=1e-6)
    term = model.objective(batch, None, trainer.context).terms["points"]
    away = np.abs(estimator.trained(anchors))
    assert term.mean().item() == pytest.approx(float(away.mean()), rel=1e-3) and away.mean() > 0.2
    assert sum(batch.part(at, at + 7).is_anchor().numpy().sum() for at in range(0, len(batch), 7)) == 64
    for _ in range(5):
        trainer.step()
    assert estimator.points is None  # the first half of eight steps


@pytest.mark.parametrize(("distance", "is_outward", "inside"), [(0.5, True, 1), (0.5, False, -1), (0.95, True, -1)])
def test_a_scene_photographed_from_within_begins_inside_a_sphere(distance, is_outward, inside):
    """The signed distance at the cameras is positive there; other scenes begin with a ball at the centre, and use SfM
    points later.
    """
    conf = trainer_conf("model.packed.points_weight=1")
    scene = replace(load_scene(conf.dataset), points=shells(0.8))
    c2w = scene.c2w.copy()
    c2w[:, :3, 3] *= distance / np.linalg.norm(c2w[:, :3, 3], axis=1, keepdims=True)
    if is_outward:
        c2w[:, :3, :3] = c2w[:, :3, :3] @ np.diag(np.float32([-1, 1, -1]))
    model = trainer_of(conf, replace(scene, c2w=c2w)).model
    centre = np.zeros((1, 3), np.float32)
    assert np.sign(model.estimator.trained(centre)[0, 0]) == inside
    assert (model.estimator.points is not None) == (inside > 0)
    if inside > 0:
        assert (model.estimator.trained(c2w[:, :3, 3].astype(np.float32)) > 0).all()


def initial_signs(*settings, centres=None):
    """Signs of the median initial distances at radii 0.15 and 0.4."""
    conf = trainer_conf(*settings)
    scene = load_scene(conf.dataset)
    if centres is not None:  # cameras at places of the working frame that look away from the middle
        poses = scene.c2w.copy()
        poses[:, :3, 3], poses[:, :3, 2] = centres(len(poses)), centres(len(poses))
        scene = replace(scene, c2w=poses)
    model = build_model(conf.model, conf.train, np.random.default_rng(0))
    model.estimator.fit(scene)
    points = unit(np.random.default_rng(0).normal(size=(200, 3)))
    shells = [(radius * points).astype(np.float32) for radius in (0.15, 0.4)]
    return [np.sign(np.median(model.estimator.trained(shell))) for shell in shells]


def test_the_initial_sphere_is_smaller_without_masks_and_inverted_around_cameras_within():
    assert initial_signs() == [-1, 1]
    assert initial_signs("model.background.bias=0.6") == [-1, -1]
    assert initial_signs("train.mask_weight=0.5") == [-1, -1]
    assert initial_signs(centres=lambda count: 0.3 * unit(np.random.default_rng(1).normal(size=(count, 3)))) == [1, 1]


def test_without_masks_the_step_size_is_at_least_the_blur_of_the_surface():
    settings = ("model.packed.prune_every=2", "model.packed.last_step=0.01", "model.packed.steps_until=0.01")
    trainer = trained(*settings, "model.background.blur_step=1", steps=2)
    blur = 1 / trainer.model.fields.sharpness().item()
    assert 0.01 < blur < trainer.model.estimator.conf.first_step
    for _ in range(2):  # the second step keeps the value of the first
        trainer.step()
        assert trainer.model.estimator.step_size == pytest.approx(blur, rel=1e-6)
    resumed = trained(*settings, "model.background.blur_step=1", steps=0)
    resumed.restore(trainer.checkpoint({}))
    trainer.step(), resumed.step()
    assert resumed.model.estimator.step_size == trainer.model.estimator.step_size
    sampled = {}
    for blur_step in (0, 1, 1e6):
        model = trained(*settings, f"model.background.blur_step={blur_step}", steps=3).model.estimator
        rays = rays_from(np.float32([[0, 0, -2]]), np.float32([[0, 0, 0]]))
        sampled[model.step_size] = model.march_view(rays).points.shape[0]
        assert model.resolving_step() == pytest.approx(model.step_size, rel=1e-2)
    assert sorted(sampled) == pytest.approx([0.01, blur, model.conf.first_step], rel=1e-6)
    assert list(sampled.values()) == sorted(sampled.values(), reverse=True)


def test_with_masks_the_step_size_is_scheduled():
    model = trained("train.mask_weight=0.5", "model.background.blur_step=1e6", "model.packed.steps_until=0.01").model
    assert model.estimator.step_size == model.estimator.conf.last_step == model.estimator.resolving_step()


def test_inv_s_is_bounded_by_the_step_size_where_the_photographs_show_the_rendered_background():
    settings = ("model.packed.last_step=0.01", "model.packed.largest_inv_s=0.1")
    with_masks = (*settings, "train.mask_weight=0.5")
    for free in (settings, (*with_masks, "train.use_white_bkgd=true")):  # the photographs are black outside the masks
        assert trained(*free, steps=3).model.sharpness() > 15  # it begins with exp(3) = 20
    bounded = trained(*with_masks, steps=3)
    assert bounded.model.sharpness() == pytest.approx(10, rel=0.1)  # 0.1 / 0.01, and the step after it
    bounded.model.fields.sharpness.reset(5)
    bounded.step()
    assert bounded.model.sharpness() == pytest.approx(5, rel=0.1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_bound_does_not_hide_a_parameter_that_is_not_finite(bad):
    trainer = trained("train.mask_weight=0.5", steps=1)
    trainer.model.fields.sharpness.variance.update(jt.array(np.float32([bad])))
    trainer.model.fields.sharpness.variance.start_grad()
    trainer.step()
    assert not trainer.settle()


def test_a_resumed_training_bounds_inv_s_alike():
    settings = ("train.mask_weight=0.5", "model.packed.largest_inv_s=0.1")
    whole, resumed = trained(*settings, steps=2), trained(*settings, steps=0)
    resumed.restore(whole.checkpoint({}))
    for _ in range(3):
        whole.step(), resumed.step()
        assert resumed.model.sharpness() == whole.model.sharpness()


@pytest.mark.parametrize("settings", [(), ("train.mask_weight=0.5",)])
def test_images_omit_only_samples_of_negligible_weight(settings, monkeypatch):
    trainer = trained(*settings, steps=3)
    scene, model = load_scene(trainer_conf().dataset), trainer.model
    rays = rays_from(scene.c2w[:1, :3, 3].repeat(64, 0), 0.5 * unit(np.random.default_rng(0).normal(size=(64, 3))))
    context, sampled = StepContext(3, None), []
    monkeypatch.setattr(
        packed, "compact", lambda found, is_kept, count: sampled.append(count) or compact(found, is_kept, count)
    )
    seen = model.view(rays, context)
    monkeypatch.setattr(packed, "LEAST_WEIGHT", ALL)
    whole = model.view(rays, context)
    assert sampled[0] < sampled[1]
    np.testing.assert_allclose(seen.rgb, whole.rgb, atol=1 / 255)
    np.testing.assert_allclose(seen.opacity, whole.opacity, atol=1 / 255)
    np.testing.assert_allclose(seen.normal, whole.normal, atol=1 / 255)
