"""Patches across photographs in a training: which are compared, in which parts, since when, and what goes with them."""

import dataclasses

import numpy as np
import pytest
from test_fast_background import OPEN, trained
from test_hits import sought
from trainings import assert_same_gradients, gradients, on_host

from models.estimators.visibility import NO_ANNEALING
from models.machine.backend import jt
from models.ops.march import SOLID
from models.ops.patches import patch_costs
from models.rendering.render import render_surface
from models.structs import SampleRequest

pytestmark = pytest.mark.slow

PATCHES = (*OPEN, "train.patches_weight=0.5", "train.patches_from=0", "model.sdf_grid.bias=0.5")
PATCHES += ("model.variance_network.init_val=0.35",)  # inv_s = 33: patches count fully


@pytest.fixture(scope="module")
def trainer():
    return trained(*PATCHES)


@pytest.mark.parametrize(("chunk", "every"), [(20, 1), (1, 3)])
def test_losses_and_gradients_do_not_depend_on_the_chunk(trainer, chunk, every):
    batch = dataclasses.replace(trainer.sampler.next(), every=every)
    whole, split = (gradients(trainer, batch, size) for size in (len(batch), chunk))
    assert 0 < whole[0]["patches"] < 1
    assert_same_gradients(split, whole, slope=1e-4)


def chosen_by_the_host(model, batch):
    """Sum and number of the costs of the patches that numpy chooses."""
    fields, samples = model.fields, model.estimator.sample(SampleRequest(batch.rays, batch))
    geometry = fields.sdf.bind().evaluate(samples.positions)
    seen = render_surface(fields.color, fields.sharpness(), samples, geometry, NO_ANNEALING, None)
    values = [value.numpy() for value in (seen.geometry.sdf, seen.geometry.gradient, seen.region_weights)]
    samples, patches = on_host(batch), model.patches
    reach = batch.step_size
    at, rays = sought(*values, samples.points, samples.directions, samples.offsets, batch.every, reach)
    (sdf, normals, _), directions = [value[at] for value in values], samples.directions[at]
    points = samples.points[at] - directions * sdf / (normals * directions).sum(axis=1, keepdims=True)
    given = map(jt.array, (points, normals, patches.views.numpy()[batch.view[rays]]))
    return patch_costs(*given, patches.cameras, patches.images, patches.layout).sum().item(), len(at)


@pytest.mark.parametrize("every", [1, 3])
def test_rays_are_compared_as_the_host_would_choose(trainer, every):
    """With rays that have no sample in the region, and in parts."""
    batch = dataclasses.replace(trainer.sampler.next(), every=every)
    middle, counts = len(batch) // 2, []
    assert (np.diff(on_host(batch).offsets) == 0).any()
    for part in (batch, batch.part(0, middle), batch.part(middle, len(batch))):
        term = trainer.model.objective(part, None, trainer.finished_steps).terms["patches"]
        total, count = chosen_by_the_host(trainer.model, part)
        assert term.count.item() == count and term.total.item() == pytest.approx(total, rel=1e-5)
        counts.append(count)
    assert counts[0] == counts[1] + counts[2] > 5


def test_no_more_patches_are_compared_than_are_worth_it():
    trainer = trained(*PATCHES, steps=0)
    assert trainer.sampler.next().every == 1
    trainer.model.estimator.most_compared = 20
    batch, counts = trainer.sampler.next(), []
    assert batch.every == -(-len(batch) // 20)
    for every in (1, 4):
        thinned = dataclasses.replace(batch, every=every)
        counts.append(trainer.model.objective(thinned, None, trainer.finished_steps).terms["patches"].count.item())
    assert 0.1 * counts[0] < counts[1] < 0.5 * counts[0]


def test_patches_come_in_when_they_are_due_and_with_masks_too():
    trainer = trained("train.mask_weight=0.5", "train.patches_weight=0.5", "train.patches_from=0.5", steps=0)
    seen = [trainer.step().losses for _ in range(5)]
    assert ["patches" in losses for losses in seen] == [False] * 4 + [True]


def test_what_shows_nothing_is_left_out_and_makes_no_difference():
    trainer = trained("model.variance_network.init_val=0.5", "model.sdf_grid.bias=0.5")
    model, sampler, found, samples = trainer.model, trainer.sampler, [], []
    state = sampler.state()
    for model.estimator.background.is_plain in (False, True):  # which the bundled scene is
        sampler.restore(state)
        found.append(sampler.next())
        samples.append(on_host(found[-1]))
    whole, spared = samples
    count = int(whole.kept[0])
    assert spared.kept[0] >= count > 1 and spared.offsets[count] < 0.8 * whole.offsets[count]
    shown = [
        model.objective(batch.part(0, count), None, trainer.finished_steps).output["rgb"].numpy() for batch in found
    ]
    np.testing.assert_allclose(shown[0], shown[1][:count], atol=5e-3)


def test_a_surface_that_goes_on_beyond_the_region_ends_on_a_smooth_sphere(trainer):
    level_set, grid = trainer.model.level_set, trainer.model.estimator.grid
    points = np.random.default_rng(0).uniform(-0.6, 0.6, (300, 3)).astype(np.float32)
    grid.set(np.full_like(grid.cells, SOLID))  # matter everywhere
    inside = level_set.outward(points)[:, 0] < 0
    grid.open()
    np.testing.assert_array_equal(inside, np.linalg.norm(points, axis=1) < 1 - grid.side)
    assert 0.5 < inside.mean() < 1
