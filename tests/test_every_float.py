"""Operations over all of float32: bit patterns drawn by search, each result against float64."""

import numpy as np
import pytest
from forms import in_form
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.machine.backend import jt
from models.ops.kernel import NATIVE, REFERENCE
from models.ops.update import AdamStep, Update, adam

LARGEST = 1e18  # of what Adam is given; the square of more comes near float32's largest number
RATE, COUNT = 1e-2, 8  # numbers of a drawn array
# Subnormal and smallest normal numbers, zeros, the largest: a search over bits alone seldom meets them together.
CORNERS = [0.0, -0.0, 1e-45, -1e-45, 1e-40, 1.17549435e-38, 1e-37, 3e-20, 1e-19, 1e-10, 1.0, -1.0, 3e9, 1e18, -1e18]
SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _finite(bits):
    value = np.uint32(bits).view(np.float32)
    return bool(np.isfinite(value)) and abs(value) <= LARGEST


FLOATS = st.sampled_from(CORNERS) | st.integers(0, 2**32 - 1).filter(_finite).map(
    lambda bits: float(np.uint32(bits).view(np.float32))
)
ARRAYS = st.lists(FLOATS, min_size=COUNT, max_size=COUNT).map(np.float32)


def adam_in_float64(parameter, gradient, first, second, step):
    """The parameter after a step and the step itself: arXiv 1412.6980, algorithm 1."""
    parameter, gradient, first, second = (value.astype(np.float64) for value in (parameter, gradient, first, second))
    first = step.beta_1 * first + (1 - step.beta_1) * gradient
    second = step.beta_2 * second + (1 - step.beta_2) * gradient**2
    change = float(np.float32(RATE)) * first / (np.sqrt(second) * step.root + step.epsilon)
    return parameter - change, change, first, second


@pytest.mark.parametrize("form", [NATIVE, REFERENCE])
@SETTINGS
@given(
    ARRAYS,
    ARRAYS,
    ARRAYS,
    ARRAYS,
    st.sampled_from([(0.999, 1e-8), (0.99, 1e-15), (0.9, 1e-15), (0.0, 1e-8)]),
    st.sampled_from([1, 2, 5000]),
)
def test_adam_is_exact_for_any_finite_numbers(form, parameter, gradient, first, second, constants, count):
    second, step = np.abs(second), AdamStep.after(count, *constants)
    before = Update([jt.array(parameter)], [jt.array(first)], [jt.array(second)], jt.array(np.ones(1, bool)))
    with in_form(form):
        after = adam(before, [jt.array(gradient)], [RATE], step)
        found = [value.numpy() for value in (*after.parameters, *after.exp_avg, *after.exp_avg_sq)]
        assert after.taken.item()
    expected, change, *moments = adam_in_float64(parameter, gradient, first, second, step)
    rounding = np.abs(np.spacing(found[0])).astype(np.float64)
    np.testing.assert_array_less(np.abs(found[0] - expected), 1e-6 * np.abs(change) + rounding)
    for moment, exact in zip(found[1:], moments, strict=True):
        np.testing.assert_allclose(moment, exact, rtol=1e-6, atol=1.2e-38)
