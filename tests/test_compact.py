"""Packed samples of which some are left out, and the order of two packed sets, against the references."""

import numpy as np
import pytest
from forms import FORMS, in_form

from models.machine.backend import jt
from models.ops.march import PackedSamples, compact, merged_order


def packed(rng, counts, spare=5):
    """Samples of rays with these counts, at ascending depths, and `spare` of no ray."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    size = int(offsets[-1]) + spare
    rays = np.zeros(size, np.int32)
    rays[: offsets[-1]] = np.repeat(np.arange(len(counts)), counts)
    depths = rng.integers(0, 40, (size, 1)).astype(np.float32)  # some are equal
    for begin, end in zip(offsets, offsets[1:], strict=False):
        depths[begin:end] = np.sort(depths[begin:end], axis=0)
    points, directions = rng.normal(size=(2, size, 3)).astype(np.float32)
    kept = np.array([len(counts)], np.int32)
    return PackedSamples(*map(jt.array, (offsets, kept, rays, depths, points, directions)))


COUNTS = {
    "mixed": lambda rng: rng.integers(0, 9, 300),
    "one long": lambda rng: np.array([0, 0, 500, 0]),
    "none": lambda rng: np.zeros(7, int),
    "more rays than threads": lambda rng: rng.integers(0, 4, 1000),
}


def in_all_forms(compute):
    """The arrays that a function gives in the first form; those of the others are equal."""
    results = []
    for form in FORMS:
        with in_form(form):
            results.append([value.numpy() for value in compute()])
    for other in results[1:]:
        for actual, expected in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(actual, expected)
    return results[0]


@pytest.mark.parametrize("budget", [1, 50, 2000])
@pytest.mark.parametrize("name", COUNTS)
def test_samples_are_left_out_and_rays_beyond_the_budget_with_theirs(name, budget):
    rng = np.random.default_rng(1)
    found = packed(rng, COUNTS[name](rng))
    is_kept = jt.array(rng.uniform(size=found.rays.shape[0]) < 0.6)
    arrays = in_all_forms(lambda: vars(compact(found, is_kept, budget)).values())
    assert arrays[0][-1] <= budget and len(arrays[2]) == budget


@pytest.mark.parametrize("name", COUNTS)
def test_two_sets_are_ordered_by_ray_and_depth(name):
    rng = np.random.default_rng(2)
    near = packed(rng, COUNTS[name](rng))
    far = packed(rng, rng.permutation(COUNTS[name](rng)), spare=9)
    place, sample = in_all_forms(lambda: merged_order(near, far))
    np.testing.assert_array_equal(sample[place], np.arange(len(place)))
