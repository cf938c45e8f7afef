"""Updates that are not finite although loss and gradients are: refused, and named by the moment that spoils them."""

import numpy as np
import pytest
from test_guard import INPUTS, all_paths, path  # noqa: F401 (a fixture)

from models.machine.backend import jt
from models.training import guard
from models.training.guard import Guard
from models.training.optimizer import Adam

BAD_MOMENTS = {
    "an infinite first moment": (np.inf, 1.0),
    "NaN for a first moment": (np.nan, 1.0),
    "a negative second moment": (1.0, -1.0),
    "an infinite second moment": (1.0, np.inf),
    "a first moment that the second does not bear": (3e38, 0.0),
}


@all_paths
@pytest.mark.parametrize("case", BAD_MOMENTS)
def test_an_update_that_would_not_be_finite_is_refused_whatever_the_gradients_are(case):
    first, second = BAD_MOMENTS[case]
    start = np.linspace(-1.0, 1.0, 23, dtype=np.float32)
    optimizer = Adam({"net": {"a": jt.array(start), "b": jt.array(start[:5])}})
    moments = [[np.zeros(23, np.float32), np.zeros(5, np.float32)] for _ in range(2)]
    moments[0][1][3], moments[1][1][3] = first, second
    optimizer.restore(4, *moments)
    taken = optimizer.step([jt.array(start * 0.0), jt.array(start[:5] * 0.0)], 0.1, jt.array([True]))
    optimizer.refuse()
    after = [value.numpy() for value in (*optimizer.parameters, *optimizer.exp_avg, *optimizer.exp_avg_sq)]
    assert not taken.numpy()[0] and optimizer.steps == 4
    for value, expected in zip(after, (start, start[:5], *moments[0], *moments[1]), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_an_update_is_named_by_the_moment_that_spoils_it():
    watcher = Guard()
    moments = {"exp_avg of a": np.ones(2), "exp_avg_sq of a": np.float32([1, -1]), "exp_avg of b": np.float32([np.inf])}
    watcher.watch(INPUTS, [jt.ones(2)], jt.array([False]))
    assert not watcher.settle({}, lambda: moments)
    (bad,) = watcher.take()
    assert bad.findings == ("the update (Adam's exp_avg of b)", "the update (Adam's exp_avg_sq of a)")
    assert guard.find_in_update({}) == [guard.UPDATE_WORDS]
