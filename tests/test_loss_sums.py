"""The sum of a loss over rows: each formula beside float64, in every form, and what is not finite."""

import numpy as np
import pytest
from forms import FORMS, in_form
from gradcheck import assert_grad_close, central_differences

from models.machine.backend import jt
from models.ops.loss_sums import KINDS, OPACITY_MARGIN, loss_sum

RNG = np.random.default_rng(0)
ROWS = 300  # more than a block of threads
COUNTS = RNG.integers(0, 2, (ROWS, 1)).astype(np.float32)
TARGETS = RNG.random((ROWS, 3)).astype(np.float32)
OF_ONE = ("CROSS_ENTROPY", "MAGNITUDE", "BELOW_ZERO")  # losses of one value


@pytest.fixture(params=FORMS)
def form(request):
    with in_form(request.param):
        yield request.param


def values_of(kind):
    """Values, some beyond the margins and zero, and targets."""
    values = RNG.normal(0.5, 0.6, (ROWS, 3)).astype(np.float32)
    values[3] = 0.0
    return (values[:, :1], (TARGETS[:, :1] > 0.5).astype(np.float32)) if kind in OF_ONE else (values, TARGETS)


def oracle(kind, values, targets, counts):
    """The sum in float64."""
    clipped = np.clip(values, OPACITY_MARGIN, 1 - OPACITY_MARGIN)
    with np.errstate(all="ignore"):
        each = {
            "ABSOLUTE": lambda: np.abs(values - targets),
            "SQUARED": lambda: (values - targets) ** 2,
            "CROSS_ENTROPY": lambda: -(targets * np.log(clipped) + (1 - targets) * np.log(1 - clipped)),
            "UNIT_LENGTH": lambda: (np.linalg.norm(values, axis=1, keepdims=True) - 1) ** 2,
            "MAGNITUDE": lambda: np.abs(values),
            "BELOW_ZERO": lambda: np.maximum(-values, 0),
        }[kind]()
    return float((each * counts).sum())


@pytest.mark.parametrize("kind", KINDS)
def test_sum_number_and_gradient_are_those_in_float64(form, kind):
    values, targets = values_of(kind)
    given = jt.array(values)
    total, number = loss_sum(kind, given, jt.array(targets), jt.array(COUNTS))
    slopes = jt.grad(total * 2.0, given).numpy()
    assert total.item() == pytest.approx(oracle(kind, values.astype(float), targets, COUNTS), rel=1e-5)
    assert number.item() == COUNTS.sum()
    assert np.isfinite(slopes).all() and not slopes[COUNTS[:, 0] == 0].any()
    smooth = np.flatnonzero((COUNTS[:, 0] > 0) & (np.abs(values).min(axis=1) > 1e-3))[:20]  # away from every corner

    def sum_of(some):
        moved = values.astype(float)
        moved[smooth] = some
        return 2.0 * oracle(kind, moved, targets, COUNTS)

    assert_grad_close(slopes[smooth].ravel(), central_differences(sum_of, values[smooth]), rtol=1e-4)
    every = loss_sum(kind, given, jt.array(targets))
    assert every[0].item() == pytest.approx(oracle(kind, values.astype(float), targets, 1.0), rel=1e-5)
    assert every[1].item() == ROWS


def test_rows_count_as_their_rays_do_and_those_of_no_ray_never(form):
    values, of_rays = RNG.normal(size=(ROWS, 1)).astype(np.float32), np.array([[1.0], [0.0], [2.0]], np.float32)
    offsets = np.array([0, 90, 200, 280], np.int32)  # 20 rows are of no ray
    rays = np.repeat([0, 1, 2, 0], [90, 110, 80, 20]).astype(np.int32)
    given, expected = jt.array(values), np.repeat([1.0, 0.0, 2.0, 0.0], [90, 110, 80, 20])[:, None]
    total, number = loss_sum("MAGNITUDE", given, None, jt.array(of_rays), (jt.array(rays), jt.array(offsets)))
    slopes = jt.grad(total, given).numpy()
    assert total.item() == pytest.approx((np.abs(values).astype(float) * expected).sum(), rel=1e-5)
    assert number.item() == 90 + 2 * 80
    np.testing.assert_allclose(slopes, np.sign(values) * expected)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_number_reaches_the_sum(form, kind):
    values, targets = values_of(kind)
    values[7] = np.nan
    assert np.isnan(loss_sum(kind, jt.array(values), jt.array(targets), jt.ones((ROWS, 1)))[0].item())
