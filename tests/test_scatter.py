"""The gradient of a feature table in CUDA's form: sums of integers, within the error bound of csrc/cuda/grid.h."""

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from forms import EMULATED, in_form

from models.machine.backend import jt
from models.ops.grid import grid_encode
from models.ops.sizes import FEATURES, grid_sizes

pytestmark = [pytest.mark.unit, pytest.mark.skipif(not EMULATED, reason="the emulated form")]
CELLS = 4
SIZES = grid_sizes(1, CELLS, CELLS, 12)  # one level, a row for each vertex


def drawn(count, seed=0):
    """Points in the middle of cells, edges and faces, where all weights are exact; cotangents of all magnitudes."""
    rng = np.random.default_rng(seed)
    points = (rng.integers(0, 2 * CELLS + 1, (count, 3)) / CELLS - 1).astype(np.float32)
    cotangents = rng.normal(size=(count, FEATURES)) * 2.0 ** rng.uniform(-12.0, 0, (count, 1))
    return points, cotangents.astype(np.float32)


def gradient(form, points, cotangents):
    with in_form(form):
        table = jt.zeros((SIZES.rows, FEATURES))
        features = grid_encode(jt.array(points), table, SIZES)
        return jt.grad((features * jt.array(cotangents)).sum(), table).numpy()


def exact(points, cotangents):
    """The same sum in rational numbers, and the number of contributions to each row."""
    place = (points.astype(np.float64) + 1) * (CELLS / 2)
    first = np.minimum(np.floor(place), CELLS - 1).astype(int)
    sums, counts = defaultdict(Fraction), defaultdict(int)
    for corner in np.ndindex(2, 2, 2):
        rows = (first + corner) @ np.array([1, CELLS + 1, (CELLS + 1) ** 2])
        weights = np.where(corner, place - first, 1 - place + first).prod(axis=1)
        for row, weight, cotangent in zip(rows, weights, cotangents, strict=True):
            counts[row] += 1
            for f in range(FEATURES):
                sums[row, f] += Fraction(weight) * Fraction(float(cotangent[f]))
    return sums, counts


def bits_after_the_point(count):
    """HIGH_BITS + low_bits of csrc/cuda/grid.h."""
    return 21 + min(22, 62 - 3 - 21 - int(np.ceil(np.log2(count))))


@pytest.mark.parametrize("scale", [0, -120, 100])
@pytest.mark.parametrize("form", EMULATED)
def test_the_sum_is_exact_up_to_the_rounding_of_each_contribution(form, scale):
    points, cotangents = drawn(700)
    cotangents = cotangents * np.float32(2.0**scale)
    found, (sums, counts) = gradient(form, points, cotangents), exact(points, cotangents)
    quantum = Fraction(float(np.abs(cotangents).max())) / 2 ** bits_after_the_point(len(points))
    least = Fraction(2) ** -147  # the resolution of the smallest numbers
    for (row, f), expected in sums.items():
        bound = counts[row] * max(quantum, least) + abs(expected) / 2**24
        assert abs(Fraction(float(found[row, f])) - expected) <= bound


def test_many_points_leave_fewer_bits_and_do_not_overflow():
    """All on one vertex, with the largest number: the sum is as large as it can be."""
    count = 2**17 + 1
    points, cotangents = np.full((count, 3), -1, np.float32), np.full((count, FEATURES), 1.9375, np.float32)
    assert gradient(EMULATED[0], points, cotangents)[0].tolist() == [np.float32(1.9375 * count)] * FEATURES
    cotangents[1:] = 2.0**-30  # far below the largest one, and not lost
    expected = 1.9375 + (count - 1) * 2.0**-30
    assert gradient(EMULATED[0], points, cotangents)[0, 0] == np.float32(expected)
    cotangents[7, 1] = np.inf
    assert np.isnan(gradient(EMULATED[0], points, cotangents)).all()
