"""confs/fast.conf without masks: the surface starts from the fused depth of a plane sweep."""

from __future__ import annotations

import sys
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from rendered_photographs import RADIUS, ring, scene_of
from runs import ROOT, everything, finished, needs_mpi, saved, started
from test_fast_background import CONF, OPEN
from test_fast_neus import SHORT
from trainings import on_host, run_conf, stopped_after, trainer_of

from data.parsed_scene import SparsePoints
from data.scenes.readers.neus import write_neus_scene
from models.checkpoints import scenes
from models.conf import load_config
from models.plan import EarlierPlan

pytestmark = pytest.mark.slow
DEPTH = (*OPEN, *SHORT, "model.open.prune_from=auto", "model.open.depth_until=0.25")


@pytest.fixture(scope="module")
def scene():
    """A textured sphere with SfM points on it."""
    directions = np.random.default_rng(0).normal(size=(300, 3))
    xyz = 0.5 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    points = SparsePoints(xyz, np.full(300, 5), np.ones(300), np.zeros((300, 3), np.uint8))
    return replace(scene_of(ring(8)), points=points)


def begun(scene, *settings):
    trainer = trainer_of(load_config(CONF, "sphere", [*DEPTH, *settings]), scene, before=EarlierPlan())
    trainer.model.begin()
    return trainer, trainer.model.plan.start


def test_the_surface_begins_where_the_depth_maps_show_it(scene):
    trainer, start = begun(scene)
    estimator, fused = trainer.model.estimator, trainer.model.estimator.points
    assert start.value == "depth maps" and start.reason.endswith("of the pixels of the photographs have a depth")
    assert np.median(np.abs(np.linalg.norm(fused, axis=1) - RADIUS)) < 0.01
    assert np.median(np.abs(estimator.distances(fused))) < 0.02
    inner = estimator.distances((0.5 * fused).astype(np.float32))
    outer = estimator.distances((1.4 * fused).astype(np.float32))
    assert (inner < 0).mean() > 0.9 and (outer > 0).mean() > 0.9
    assert trainer.model.sharpness() == pytest.approx(60, rel=1e-3)
    assert estimator.pruner.first_step == pytest.approx(0.05 * 8)


def test_points_of_depth_maps_are_used_first_and_sfm_points_later(scene):
    trainer, _ = begun(scene, "train.points_weight=1")
    radii = []
    for step in range(4):
        trainer.model.estimator.before_step(step)
        batch = trainer.sampler.next()
        anchors = on_host(batch).points[batch.is_anchor().numpy()[:, 0] > 0]
        radii.append(np.median(np.linalg.norm(anchors, axis=1)))
    np.testing.assert_allclose(radii, [RADIUS, RADIUS, 0.5, 0.5], atol=0.01)
    without_loss = begun(scene, "train.points_weight=0")[0].model.estimator
    assert without_loss.points is None and without_loss.plan.start.value == "depth maps"


def test_nothing_is_swept_with_masks_or_if_the_conf_does_not_ask(scene):
    masks = tuple(np.full(image.shape[:2], 255, np.uint8) * (image[..., 0] > 0) for image in scene.images)
    masked = replace(scene, masks=masks)
    for other, setting in ((masked, "train.mask_weight=0.5"), (scene, "model.open.depth_until=0")):
        with mock.patch.object(scenes, "fused_depth", None):
            trainer, start = begun(other, setting)
        assert start.value == "sphere"
        assert trainer.model.sharpness() == pytest.approx(np.exp(3.0), rel=1e-3)
    plain = tuple(np.full_like(image, 90) for image in scene.images)  # without texture
    trainer, start = begun(replace(scene, images=plain))
    assert (start.value, start.reason) == ("sphere", "too few pixels have a depth")
    assert trainer.model.estimator.pruner.first_step == pytest.approx(0.2 * 8)


@pytest.fixture(scope="module")
def whole(scene, tmp_path_factory):
    """A training of eight steps by one process, and its settings."""
    folder = tmp_path_factory.mktemp("depth")
    write_neus_scene(folder / "scene", scene)
    settings = (*DEPTH, f"dataset.data_dir={folder}/scene", 'dataset.test_dir=""', "train.save_freq=1")
    settings += ("dataset.masks_from_backdrop=False", "train.ema_decay=0.9")
    assert run_conf(CONF, folder / "whole", "--case", "sphere", settings=settings) == 0
    return folder / "whole", settings


@pytest.mark.parametrize("step", [1, 4])
def test_a_resumed_training_is_the_unbroken_one_bit_for_bit(scene, whole, tmp_path, step):
    """Stopped while the points of the depth maps are used, and later."""
    trained, settings = whole
    folder = stopped_after(step, trained, tmp_path / "resumed")
    assert run_conf(CONF, folder, "--case", "sphere", "--is_continue", settings=settings) == 0
    one, other = (everything(saved(where, 8)) for where in (trained, folder))
    plan = saved(folder, 8).state["plan"]
    assert one == other and (plan["start"]["value"], plan["depth_views"]) == ("depth maps", scene.n_views)


@pytest.mark.cli
@needs_mpi
def test_two_ranks_begin_with_the_same_surface(whole, tmp_path):
    flags = [flag for setting in (*whole[1], f"general.base_exp_dir={tmp_path}") for flag in ("--set", setting)]
    command = [sys.executable, str(ROOT / "exp_runner.py"), "--conf", str(CONF), "--case", "sphere", *flags]
    status, _, err = finished(started([*command, "--set", "train.end_iter=2"]))
    assert status == 0, err
    assert saved(tmp_path, 2).state["plan"]["start"]["value"] == "depth maps"
