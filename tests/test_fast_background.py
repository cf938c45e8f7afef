"""Photographs without masks with confs/fast.conf: beyond the sphere, cameras within it, pockets; batches of a GPU."""

from __future__ import annotations

import dataclasses
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from runs import ROOT, everything, saved
from synthetic_scene import write_scene
from test_fast_neus import SHORT, TINY, assert_slopes
from test_fast_neus import trained as trained_with_masks
from trainings import assert_same_gradients, gradients, on_host, run_conf, samples_of, stopped_after, trainer_of

from data.errors import UserError
from data.prepare.load import load_scene
from data.rays import Rays
from models.conf import load_config
from models.config.strict import ConfigError
from models.estimators.background import MergedBackground
from models.estimators.budget import FIRST, MOST_EMPTY, counts_of, per_ray
from models.estimators.conf import OpenConfig
from models.machine.backend import jt
from models.ops.march import merged_order
from models.ops.outside import candidates, contracted
from models.ops.sizes import BACKGROUND_RADIUS
from models.ops.source import REFERENCE, use

pytestmark = pytest.mark.slow

CONF = ROOT / "confs/fast.conf"
OPEN = (
    *TINY,
    "train.mask_weight=0",
    *(f"model.density_grid.{key}" for key in ("levels=4", "coarsest=4", "finest=16", "log2_rows=10", "d_hidden=16")),
    *(f"model.open.{key}" for key in ("samples=2048", "cells=16", "section=0.3", "prune_from=0.3")),
)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def rays_from(origins, towards):
    origins, directions = origins.astype(np.float32), unit(towards - origins).astype(np.float32)
    middle = -(origins * directions).sum(axis=1, keepdims=True)
    return Rays(origins, directions, middle - 1, middle + 1)


@pytest.fixture(scope="module")
def some_rays():
    """Through the sphere, beside it, and from within."""
    rng = np.random.default_rng(3)
    outside = unit(rng.normal(size=(40, 3))) * rng.uniform(1.5, 4, (40, 1))
    within = unit(rng.normal(size=(10, 3))) * 0.7
    return rays_from(np.concatenate([outside, within]), rng.uniform(-2, 2, (50, 3)))


def trainer_conf(*settings):
    return load_config(CONF, "demo", [*OPEN, *SHORT, *settings])


def trained(*settings, steps=3):
    """A trainer on the bundled scene as if it had no masks."""
    return trainer_of(trainer_conf(*settings), steps=steps)


@pytest.fixture(scope="module")
def trainer():
    """One that tests must not change."""
    return trained()


@pytest.mark.parametrize("section", [0.05, 0.3])
def test_samples_beyond_the_sphere_are_even_shares_of_their_distance(some_rays, section):
    depths, exist, is_before = candidates(some_rays, np.full((50, 1), 0.5), section, 0.1)
    points = some_rays.origins[:, None] + some_rays.directions[:, None] * depths[..., None].astype(float)
    radius = np.linalg.norm(points, axis=2)
    assert radius[exist].min() > 1 - 1e-4 and radius[exist].max() < 1.05 * BACKGROUND_RADIUS
    assert depths[exist].min() >= 0.1
    later, also, _ = candidates(some_rays, np.full((50, 1), 0.75), section, 0.1)
    assert (later > depths)[exist & also].all()
    steps = np.diff(depths, axis=1)
    both = exist[:, 1:] & (is_before[:, 1:] == is_before[:, :-1])
    share = (steps / np.sqrt(radius[:, 1:] * radius[:, :-1]))[both]  # of the distance, to second order
    np.testing.assert_allclose(share, section, rtol=0.6 * section)
    # The last one is far, whatever the ray.
    last = exist.sum(axis=1) - 1
    assert (radius[np.arange(50), last] > BACKGROUND_RADIUS * np.exp(-2.5 * section)).all()
    assert not is_before[40:].any() and is_before[:40].any()  # cameras within have nothing before it


@pytest.mark.parametrize("section", [0.02, 0.3])
def test_a_budget_must_hold_the_samples_of_any_ray(some_rays, section):
    most = math.ceil(2.0 * math.log(BACKGROUND_RADIUS) / section)
    assert most / 3 < candidates(some_rays, np.zeros((50, 1)), section, 0.0)[1].sum(axis=1).max() <= most
    OpenConfig(samples=max(64, most), section=section).check()
    with pytest.raises(ConfigError, match=rf"model.open.samples = {most - 1}: a single ray may have {most} sam"):
        OpenConfig(samples=most - 1, section=section).check()


def test_contraction_is_that_of_mip_nerf_360():
    points = np.random.default_rng(0).normal(size=(200, 3)) * 10
    radius = np.linalg.norm(points, axis=1, keepdims=True)
    points, radius = points[radius[:, 0] > 1], radius[radius[:, 0] > 1]
    np.testing.assert_allclose(contracted(points) * 2, (2 - 1 / radius) * points / radius, atol=1e-6)
    assert np.abs(contracted(points * 1e6)).max() < 1


def test_two_sets_of_samples_are_one_row_by_depth_and_get_its_cotangents():
    rng, sets = np.random.default_rng(0), []
    for counts, depths in (([2, 0, 3, 0], [1, 4, 1, 2, 3, 9, 0, 0]), ([3, 1, 0, 0], [0.5, 2, 5, 7, 0])):
        blank = np.zeros((len(depths), 3), np.float32)
        sets.append(samples_of(np.concatenate([[0], np.cumsum(counts)]), blank, blank, np.float32(depths)))
    near, far = jt.arange(8).unsqueeze(1).float32(), jt.arange(100, 105).unsqueeze(1).float32()
    both = MergedBackground(far, far, *merged_order(*sets), None, 8)
    joined = both.joined(near, near)[0]
    row = joined.numpy()[:, 0]
    np.testing.assert_array_equal(row[:9], [100, 0, 101, 1, 102, 103, 2, 3, 4])
    np.testing.assert_array_equal(np.sort(row), [*range(8), *range(100, 105)])
    np.testing.assert_array_equal(both.of_region(joined).numpy()[:, 0], range(8))
    weights = rng.normal(size=(13, 1)).astype(np.float32)
    slopes = [value.numpy() for value in jt.grad((joined * jt.array(weights)).sum(), [near, far])]
    np.testing.assert_array_equal(np.concatenate(slopes), weights[np.argsort(row)])


def test_the_objective_is_the_references_and_of_finite_differences(trainer):
    batch = trainer.sampler.next().part(0, 20)
    samples = on_host(batch)
    assert batch.mask is None and samples.far.offsets[-1] > 100 and samples.offsets[-1] > 40
    native = gradients(trainer, batch, 1000)
    with use(REFERENCE):
        reference = gradients(trainer, batch, 1000)
    assert_same_gradients(native, reference, loss=2e-4, slope=2e-3)
    assert_same_gradients(gradients(trainer, batch, 3), native, slope=1e-4)
    assert_slopes(trainer, batch, ("background_density.lin1.weight", "background_color.lin1.weight"))


def test_a_resumed_run_is_the_unbroken_one_and_gives_results(tmp_path):
    """Eight steps without masks, averaged, with SfM points."""
    write_scene(tmp_path / "scene", n_views=8, masks=False)
    settings = (*OPEN, *SHORT, f"dataset.data_dir={tmp_path}/scene", 'dataset.test_dir=""', "train.ema_decay=0.9")
    whole = tmp_path / "whole"
    assert run_conf(CONF, whole, "--case", "plain", settings=settings) == 0
    folder = stopped_after(4, whole, tmp_path / "resumed")
    assert run_conf(CONF, folder, "--case", "plain", "--is_continue", settings=settings) == 0
    one, other = (everything(saved(where, 8)) for where in (whole, folder))
    assert one == other and "background_cells" in saved(whole, 8).buffers

    for mode in (("validate_image",), ("validate_mesh", "--resolution", "24"), ("plan",)):
        assert run_conf(CONF, whole, "--case", "plain", "--mode", *mode, settings=settings) == 0, mode


def test_masks_from_a_backdrop_replace_the_background_and_are_checked(tmp_path, capsys):
    write_scene(tmp_path / "scene", n_views=8, masks=False)
    settings = (*OPEN, *SHORT, f"dataset.data_dir={tmp_path}/scene", 'dataset.test_dir=""', "train.mask_weight=0.5")

    assert run_conf(CONF, tmp_path / "exp", "--case", "plain", settings=settings) == 0
    assert "masks: derived from the uniform backdrop of the photographs, RGB 0 0 0" in capsys.readouterr().out
    checkpoint = saved(tmp_path / "exp", 8)
    np.testing.assert_array_equal(checkpoint.buffers["backdrop"], np.zeros(3, np.float32))
    assert not [name for name in (*checkpoint.tensors, *checkpoint.buffers) if name.startswith("background")]
    result, without = ("--case", "plain", "--mode", "validate_image"), (*settings, "dataset.masks_from_backdrop=False")
    assert run_conf(CONF, tmp_path / "exp", *result, settings=settings) == 0
    assert run_conf(CONF, tmp_path / "exp", *result, settings=without) == 2
    assert "trained with masks derived" in capsys.readouterr().err


def region(radius):
    """The setting of a region about the bundled object, its radius in those of its own."""
    frame = load_scene(load_config(CONF, "demo", OPEN).dataset).scene_to_world
    numbers = [*frame[:3, 3], radius * np.linalg.norm(frame[:3, 0])]
    return "dataset.roi=" + " ".join(f"{number:.6f}" for number in numbers)


def test_cameras_within_the_region_are_for_kinds_whose_rays_start_there():
    inside = (region(3),)
    scene = load_scene(trainer_conf(*inside).dataset)
    assert np.linalg.norm(scene.c2w[:, :3, 3], axis=1).min() < 1
    settings = [OPEN[0], *inside, "dataset.camera_outside_sphere=false"]
    published = load_config(ROOT / "confs/womask_cpu.conf", "demo", settings)
    with pytest.raises(UserError, match=r"confs/fast\.conf, whose rays start at the camera") as refused:
        load_scene(published.dataset)
    fitting = dataclasses.replace(published.dataset, roi=re.search(r'--roi "(.*?)"', str(refused.value)).group(1))
    assert 1 < np.linalg.norm(load_scene(fitting).c2w[:, :3, 3], axis=1).min() < 1.05


@pytest.mark.parametrize("plain", [True, False])
def test_a_plain_backdrop_is_there_from_the_start(plain):
    conf = trainer_conf()
    scene = load_scene(conf.dataset)
    rng = np.random.default_rng(0)
    images = []
    for image in scene.images:
        backdrop = np.full_like(image, 230) if plain else rng.integers(0, 256, image.shape, dtype=np.uint8)
        backdrop[8:-8, 8:-8] = image[8:-8, 8:-8]
        images.append(backdrop)
    model = trainer_of(conf, dataclasses.replace(scene, images=tuple(images))).model
    shown = jt.array(np.float32([[230, 230, 230], [230, 230, 226]]) / 255)
    np.testing.assert_array_equal(model.estimator.background.shows_alone(shown).numpy(), [plain, False])
    assert (model.free_rays(SimpleNamespace(rgb=shown)) is not None) == plain
    np.testing.assert_allclose(model.estimator.background.sky, 230 / 255 if plain else 0, atol=1e-6)
    far = jt.array(contracted(unit(rng.normal(size=(50, 3))) * 3))
    density = model.estimator.background.density.evaluate(far)[0].numpy()
    assert density.mean() == pytest.approx(0.05 if plain else 4.0, rel=0.3)


def test_where_no_ray_sees_anything_the_scene_is_told_of():
    trainer = trained()
    hull = np.zeros_like(trainer.model.estimator.grid.hull)
    hull[0, 0, 0] = True  # a corner of the cube, beyond the sphere to which rays are cut
    trainer.model.estimator.grid.enclose(hull)
    beyond = trainer.model.estimator.background.grid
    beyond.set(np.zeros_like(beyond.cells))
    with pytest.raises(UserError, match="no photograph sees the region where the object may be"):
        for _ in range(MOST_EMPTY + 1):
            on_host(trainer.sampler.next())


# sizes of a batch from the counts of the batch before the last one, as on a GPU


def late(made=trained_with_masks, steps=0):
    """A trainer whose sampler is one batch late, as on a GPU."""
    trainer = made(steps=0)
    trainer.model.estimator.budget.uncounted = 1
    for _ in range(steps):
        trainer.step()
    return trainer


def test_a_batch_is_sized_by_the_counts_of_the_batch_before_the_last_one():
    trainer, counts, estimates = late(), [], []
    budget = trainer.model.estimator.budget
    for _ in range(5):
        trainer.sampler.next()
        estimates.append(budget.per_ray)
        counts.append(counts_of(budget.counts[-1]))
    assert estimates == [FIRST, FIRST, *(per_ray(each, {}) for each in counts[:3])]


@pytest.mark.parametrize("made", [trained_with_masks, trained])
def test_a_resumed_training_has_the_same_batches_and_weights(made):
    whole, resumed = late(made, steps=5), late(made)
    resumed.restore(whole.checkpoint({}))
    for _ in range(3):
        for trainer in (whole, resumed):
            trainer.step()
    ends = [trainer.checkpoint({}) for trainer in (whole, resumed)]
    assert ends[0].state == ends[1].state and len(ends[0].state["sampler"]["counted"]) == 1
    for network, named in ends[0].tensors.items():
        for name, values in named.items():
            np.testing.assert_array_equal(ends[1].tensors[network][name], values, err_msg=name)
    batches = [trainer.sampler.next().words() for trainer in (whole, resumed)]
    assert all(np.array_equal(batches[0][name], values) for name, values in batches[1].items())
