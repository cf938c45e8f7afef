"""Numbers of rays and samples of packed batches, which follow the samples per ray of the batch before."""

from types import SimpleNamespace

import numpy as np
import pytest
from test_fast_background import trained

from data.errors import UserError
from models.estimators.budget import ROUNDED_TO, SampleBudget, counts_of, per_ray
from models.estimators.packed import PackedEstimator

pytestmark = pytest.mark.slow
LIMITED = ("model.packed.samples=8192", "model.open.samples=512", "train.ray_chunk=8192")


def settled(trainer):
    """A batch whose estimates are those of a batch of the same kind, with its sizes and counts."""
    budget, sizes = trainer.model.estimator.budget, []
    estimated = budget.next_sizes
    with pytest.MonkeyPatch.context() as recording:
        recording.setattr(budget, "next_sizes", lambda *given: sizes.append(estimated(*given)) or sizes[-1])
        for _ in range(4):
            batch = trainer.sampler.next()
    return batch, sizes[-1][1], SimpleNamespace(**counts_of(budget.counts[-1]))


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_rays_that_the_background_limits_leave_no_samples_unused(share, monkeypatch):
    trainer = trained(*LIMITED, steps=0)
    monkeypatch.setattr(PackedEstimator, "random_share", share)
    batch, (samples, walked, budget, asked, far), counts = settled(trainer)
    assert counts.rays > 0.9 * len(batch) and 0.7 * 512 < counts.far <= far == 512
    for count, size in ((counts.near, budget), (counts.walked, walked), (counts.asked, asked)):
        assert count <= size <= 1.3 * count + ROUNDED_TO
    assert budget < 8192 * (1 - share) and samples == budget + share * 8192 == batch.region.points.shape[0]


def test_rays_that_the_region_limits_leave_no_samples_unused():
    trainer = trained("model.packed.samples=1024", "model.open.samples=65536", steps=0)
    _, sizes, counts = settled(trainer)
    assert sizes.samples == 1024 and 0.7 * sizes.visible < counts.near
    assert counts.far <= sizes.background_visible <= 1.3 * counts.far + ROUNDED_TO < 65536


@pytest.mark.parametrize("settings", [LIMITED, ("model.packed.samples=1024",)], ids=["background", "region"])
def test_wrong_estimates_are_corrected(settings):
    trainer = trained(*settings, steps=0)
    expected, budget = settled(trainer)[2], trainer.model.estimator.budget
    for guess in (1e-6, 1e4):
        budget.per_ray = dict.fromkeys(("near", "walked", "far", "asked"), guess) | {"hits": 1.0}
        found = [trainer.sampler.next() and counts_of(budget.counts[-1])["rays"] for _ in range(24)]
        assert np.median(found[-4:]) == pytest.approx(expected.rays, rel=0.25)


def test_there_is_room_for_what_the_rays_are_expected_to_traverse():
    budget = SampleBudget(8192, 8192, has_hidden=True, when_blind=list)
    budget.per_ray = {"near": 0.9, "walked": 20.0, "far": 20.0, "asked": 30.0, "hits": 1.0}
    rays, sizes = budget.next_sizes(512, 0, 0.08)
    assert sizes.traversed >= 20 * rays and sizes.visible < 1024
    budget = SampleBudget(8192, 64, has_hidden=True, when_blind=list)
    budget.per_ray = {"near": 0.1, "walked": 0.1, "far": 20.0, "asked": 20.0, "hits": 1.0}
    _, sizes = budget.next_sizes(512, 0, 0.002)
    assert min(sizes.traversed, sizes.visible) > 1000  # few rays, and one along 2 radii


def test_counts_become_means_per_ray():
    counts = {"rays": 4, "hits": 3, "near": 10, "walked": 20, "far": 8, "asked": 12}
    assert per_ray(counts, {}) == {"near": 2.5, "walked": 5.0, "far": 2.0, "asked": 3.0, "hits": 0.75}
    assert per_ray({"rays": 0}, {"near": 3.0, "walked": 0.0, "hits": 0.75}) == {
        "near": 6.0,
        "walked": 2.0,
        "hits": 0.75,
    }


def test_a_damaged_state_is_refused():
    sampler = trained(steps=0).sampler
    for damage in ({"near": float("nan")}, 7.0):
        with pytest.raises(UserError, match="damaged"):
            sampler.restore(sampler.state() | {"per_ray": damage})


def test_batches_without_samples_are_counted_until_one_has_some():
    blind = []
    budget = SampleBudget(8192, 0, has_hidden=True, when_blind=lambda: blind.append(budget.empty_batches))
    budget.uncounted = 0
    for hits in (0, 0, 3, 0):
        budget.counts.append({"rays": 5, "hits": hits})
        budget.update()
    assert budget.empty_batches == 1 and blind == [1, 2, 1]
