"""Patches across photographs in a training: which are compared, in which parts, since when, and what goes with them."""

import dataclasses

import numpy as np
import pytest
from packed_samples import on_host
from test_fast_background import OPEN, trained
from test_fast_neus import CONF
from test_hits import sought
from trainings import assert_same_gradients, gradients

from data.errors import UserError
from models.estimators.visibility import NO_ANNEALING
from models.machine.backend import jt
from models.methods.conf import load_config
from models.ops.march import SOLID
from models.ops.patches import patch_costs
from models.rendering.patches import MOST_STEPS
from models.rendering.render import render_surface

pytestmark = pytest.mark.slow

PATCHES = (
    *OPEN,
    *("model.background.patches_weight=0.5", "model.patches.begins=0", "model.background.bias=0.5"),
    "model.variance_network.init_val=0.35",  # inv_s = 33: patches count fully
)


@pytest.fixture(scope="module")
def trainer():
    return trained(*PATCHES)


@pytest.mark.parametrize(("chunk", "every"), [(20, 1), (1, 3)])
def test_losses_and_gradients_do_not_depend_on_the_chunk(trainer, chunk, every):
    batch = dataclasses.replace(trainer.sampler.next(), every=np.int32([every]))
    whole, split = (gradients(trainer, batch, size) for size in (len(batch), chunk))
    assert 0 < whole[0]["patches"] < 1
    assert_same_gradients(split, whole, slope=1e-4)


ROWS_OF_A_PATCH = 8 * 5  # of the table, which carry its slope: the corners of a cell in each of five levels


def chosen_by_the_host(model, batch):
    """Sum and number of the costs of the patches that numpy chooses, and the slopes of the sum by the table."""
    seen = render_surface(model.fields.at_weights(), model.estimator.sample(batch), NO_ANNEALING, None)
    values = [value.numpy() for value in (seen.geometry.sdf, seen.geometry.gradient, seen.region_weights)]
    reach = MOST_STEPS * float(batch.step[0])
    samples = on_host(batch)
    at, rays = sought(*values, samples.points, samples.directions, samples.offsets, batch.every[0], reach)
    rows, directions = jt.array(at.astype(np.int32)), jt.array(samples.directions[at])
    normals = seen.geometry.gradient[rows]
    further = -seen.geometry.sdf[rows] / (normals * directions).sum(dim=1, keepdims=True)
    patches = model.patches
    views = patches.views[jt.array(batch.view[rays])]
    points = jt.array(samples.points[at]) + directions * further
    costs = patch_costs(points, normals, views, patches.cameras, patches.images, patches.layout)
    return costs.sum().item(), len(at), jt.grad(costs.sum(), model.fields.sdf.table).numpy()


@pytest.mark.parametrize("every", [1, 3])
def test_the_same_rays_are_compared_as_the_host_would_choose_and_it_reads_nothing(trainer, every, monkeypatch):
    """With rays that have no sample in the region, and in parts."""
    model, moment = trainer.model, trainer.context
    batch = dataclasses.replace(trainer.sampler.next(), every=np.int32([every]))
    middle = len(batch) // 2
    parts = [batch, batch.part(0, middle), batch.part(middle, len(batch))]
    expected = [chosen_by_the_host(model, part) for part in parts]
    assert (np.diff(on_host(batch).offsets) == 0).any() and expected[0][1] > 5
    with monkeypatch.context() as patch:
        for name in ("numpy", "item", "fetch_sync"):
            patch.setattr(jt.Var, name, lambda value: pytest.fail("the host reads from the device within a step"))
        terms = [model.objective(part, None, moment).terms["patches"] for part in parts]
        slopes = [jt.grad(term.total, model.fields.sdf.table) for term in terms]
    for term, slope, (total, count, theirs) in zip(terms, slopes, expected, strict=True):
        assert term.count.item() == count and term.total.item() == pytest.approx(total, rel=1e-5)
        # A point that is rounded otherwise may lie across the border of a pixel, where the slope of the image changes:
        # seen for one patch in six batches, in the rows of its cells alone. All other rows agree.
        apart, bound = np.linalg.norm(slope.numpy() - theirs, axis=1), np.linalg.norm(theirs)
        assert np.linalg.norm(apart) <= 5e-4 * bound
        assert np.linalg.norm(np.sort(apart)[:-ROWS_OF_A_PATCH]) <= 1e-5 * bound
    assert expected[0][1] == expected[1][1] + expected[2][1]


def test_no_more_patches_are_compared_than_are_worth_it():
    trainer = trained(*PATCHES, steps=0)
    batch = trainer.sampler.next()
    assert batch.every[0] == 1
    trainer.model.estimator.compare_patches(20)
    batch = trainer.sampler.next()
    assert batch.every[0] == -(-len(batch) // 20)
    counts = [
        trainer.model.objective(dataclasses.replace(batch, every=np.int32([every])), None, trainer.context)
        .terms["patches"]
        .count.item()
        for every in (1, 4)
    ]
    assert 0.1 * counts[0] < counts[1] < 0.5 * counts[0]


def test_patches_come_in_when_they_are_due_and_with_masks_too():
    trainer = trained("train.mask_weight=0.5", "model.patches.weight=0.5", "model.patches.begins=0.5", steps=0)
    seen = [trainer.step().found.losses for _ in range(5)]
    assert ["patches" in losses for losses in seen] == [False] * 4 + [True]


def test_what_shows_nothing_is_left_out_and_makes_no_difference():
    trainer = trained("model.variance_network.init_val=0.5", "model.background.bias=0.5", steps=3)
    model, sampler = trainer.model, trainer.sampler
    state, batches, samples = sampler.state(), [], []
    for model.estimator.background.is_plain in (False, True):  # which the bundled scene is
        sampler.restore(state)
        batches.append(sampler.next())
        samples.append(on_host(batches[-1]))
    whole, spared = samples
    count = int(whole.kept[0])
    assert spared.kept[0] >= count > 1 and spared.offsets[count] < 0.8 * whole.offsets[count]
    np.testing.assert_array_equal(batches[0].rgb, batches[1].rgb)
    shown = [model.objective(batch.part(0, count), None, trainer.context).output.rgb.numpy() for batch in batches]
    np.testing.assert_allclose(shown[0], shown[1][:count], atol=5e-3)


def test_a_surface_that_goes_on_beyond_the_region_ends_on_a_smooth_sphere(trainer):
    model, side = trainer.model, trainer.model.estimator.grid.side
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(300, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    points = (directions * rng.uniform(0.2, 1.0, (300, 1))).astype(np.float32)
    model.estimator.grid.set(np.full_like(model.estimator.grid.cells, SOLID))  # matter everywhere
    inside = model.level_set.outward(points)[:, 0] < 0
    model.estimator.grid.open()
    np.testing.assert_array_equal(inside, np.linalg.norm(points, axis=1) < 1 - side)


def test_more_agreement_than_neighbours_is_refused():
    with pytest.raises(UserError, match=r"model\.patches\.best = 9: must not be above neighbours = 8"):
        load_config(CONF, "demo", [*OPEN, "model.patches.best=9"])
