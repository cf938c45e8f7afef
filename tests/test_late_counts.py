"""Sizes of packed batches from the counts of the batch before the last one, as on a GPU."""

import numpy as np
import pytest
from test_fast_background import trained as trained_without_masks
from test_fast_neus import trained

from data.errors import UserError
from models.estimators.batch import Counts
from models.estimators.sampler import PerRay

pytestmark = pytest.mark.slow


def late(made=trained, steps=0):
    """A trainer whose sampler is one batch late, as on a GPU."""
    trainer = made(steps=0)
    trainer.sampler._uncounted = 1
    for _ in range(steps):
        trainer.step()
    return trainer


def test_a_batch_is_sized_by_the_counts_of_the_batch_before_the_last_one():
    sampler, counts, estimates = late().sampler, [], []
    for _ in range(5):
        batch = sampler.next()
        estimates.append(sampler._per_ray)
        counts.append(batch.placed.counts)
    assert estimates == [PerRay(), PerRay(), *map(PerRay.of, counts[:3])]


@pytest.mark.parametrize("made", [trained, trained_without_masks])
def test_a_resumed_training_has_the_same_batches_and_weights(made):
    whole, resumed = late(made, steps=5), late(made)
    resumed.restore(whole.checkpoint({}))
    for _ in range(3):
        for trainer in (whole, resumed):
            trainer.step()
        last = [trainer.sampler._last.arrays() for trainer in (whole, resumed)]
        assert all(np.array_equal(last[0][name], values) for name, values in last[1].items())
    ends = [trainer.checkpoint({}) for trainer in (whole, resumed)]
    assert ends[0].state == ends[1].state and len(ends[0].state["sampler"]["counted"]) == 1
    for network, named in ends[0].tensors.items():
        for name, values in named.items():
            np.testing.assert_array_equal(ends[1].tensors[network][name], values, err_msg=name)


def test_on_the_cpu_the_last_batch_counts_also_one_of_a_gpu():
    gpu, resumed, fresh = late(steps=2).sampler, trained(steps=0).sampler, trained(steps=0).sampler
    last = gpu._last.placed.counts
    resumed.restore(gpu.state())
    for sampler, counts in ((resumed, last), (fresh, fresh.next().placed.counts)):
        sampler.next()
        assert sampler._per_ray == PerRay.of(counts)


def test_damaged_counts_are_refused():
    sampler, good = trained(steps=0).sampler, vars(Counts(4, 3, 10, 20))
    changes = ({"rays": -1}, {"rays": "many"}, {"rows": 3}, {"near": 2**31}, {"near": np.inf})
    for bad in (4, *(good | change for change in changes)):
        with pytest.raises(UserError, match="damaged"):
            sampler.restore(sampler.state() | {"counted": [bad]})
    sampler.restore(sampler.state() | {"counted": [good]})
