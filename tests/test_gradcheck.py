"""The gradient helpers notice wrong gradients, and the oracle's own derivatives agree with each other."""

from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from gradcheck import assert_grad_close, central_differences, some_entries

RIGHT = np.array([[3.0, -1.0], [0.25, 2.0]])


def cubic(x):
    return float((x**3).sum())


def test_central_differences_of_a_cubic_are_three_x_squared():
    x = np.array([[0.5, -2.0], [0.0, 1.5]])
    np.testing.assert_allclose(central_differences(cubic, x), (3.0 * x**2).ravel(), atol=1e-8)


def test_central_differences_at_given_entries_leave_the_argument_unchanged():
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(central_differences(cubic, x, [5, 1]), [75.0, 3.0], rtol=1e-8)
    np.testing.assert_array_equal(x, np.arange(6.0).reshape(2, 3))


def test_some_entries_are_distinct_and_within_the_array():
    entries = some_entries(np.zeros((7, 3)), 10)
    assert len(set(entries.tolist())) == 10 and entries.min() >= 0 and entries.max() < 21
    assert some_entries(np.zeros(()), 5).tolist() == [0]


def test_a_gradient_with_rounding_errors_passes():
    assert_grad_close(RIGHT * (1.0 + 1e-5), RIGHT)
    assert_grad_close(np.zeros(3), np.zeros(3))


@pytest.mark.parametrize(
    "wrong",
    [
        -RIGHT,
        RIGHT.T,
        2.0 * RIGHT,
        RIGHT + [[0.0, 0.0], [0.01, 0.0]],
        np.zeros_like(RIGHT),
        RIGHT * [[1.0, 1.0], [1.0, np.nan]],
        RIGHT * [[1.0, np.inf], [1.0, 1.0]],
        RIGHT.ravel(),
    ],
    ids=["sign", "transposed", "factor", "one entry", "zero", "nan", "infinite", "shape"],
)
def test_a_wrong_gradient_fails(wrong):
    with pytest.raises(AssertionError):
        assert_grad_close(wrong, RIGHT)


def test_errors_within_the_tolerance_but_in_a_wrong_direction_fail():
    with pytest.raises(AssertionError, match="cosine"):
        assert_grad_close([1.0, 0.3], [1.0, 0.0], rtol=0.5)


def test_a_lost_gradient_fails_although_it_lies_within_a_loose_tolerance():
    with pytest.raises(AssertionError):
        assert_grad_close(np.zeros(3), np.full(3, 1e-3), rtol=1.0, atol=1e-6)


def test_an_expected_gradient_that_is_not_finite_fails():
    with pytest.raises(AssertionError, match="expected gradient"):
        assert_grad_close(RIGHT, RIGHT * np.nan)


def test_the_oracles_gradient_by_complex_steps_is_that_by_central_differences():
    rng = np.random.default_rng(3)
    conf = SimpleNamespace(scale=2.0, multires=2, n_layers=2, skip_in=(1,))
    shapes = {"lin0": (9, 15), "lin1": (12, 24), "lin2": (3, 12)}
    params = {f"{name}.weight": rng.normal(0, 0.2, shape) for name, shape in shapes.items()}
    params |= {f"{name}.bias": rng.normal(0, 0.1, shape[0]) for name, shape in shapes.items()}
    points = rng.uniform(-1, 1, (5, 3))
    actual = oracles.sdf_gradient(params, conf, points)
    for row, point in zip(actual, points, strict=True):
        expected = central_differences(lambda p: oracles.sdf_network(params, conf, p[None])[0].item(), point)
        assert_grad_close(row, expected, rtol=1e-6)
