"""Updates that are not finite although loss and gradients are: skipped, and the moment that causes it is reported."""

import numpy as np
import pytest
from test_guard import INPUTS, all_paths, path  # noqa: F401 (a fixture)

from models.config.optimizers import UpdateSettings
from models.machine.backend import jt
from models.training import update_check
from models.training.guard import Guard, StepUpdate
from models.training.optimizer import Optimizer
from models.training.update_check import INPUTS as PARTS
from models.training.update_check import Entries, find_faults

BAD_MOMENTS = {
    "NaN for a first moment": (np.nan, 1.0),
    "a negative second moment": (1.0, -1.0),
    "a first moment that the second does not bear": (3e38, 0.0),
}


@all_paths
@pytest.mark.parametrize("case", BAD_MOMENTS)
def test_an_update_that_would_not_be_finite_is_refused(case):
    first, second = BAD_MOMENTS[case]
    start = np.linspace(-1.0, 1.0, 23, dtype=np.float32)
    optimizer = Optimizer({"net": {"a": jt.array(start), "b": jt.array(start[:5])}})
    moments = [[np.zeros(23, np.float32), np.zeros(5, np.float32)] for _ in range(2)]
    moments[0][1][3], moments[1][1][3] = first, second
    optimizer.restore(4, *moments)
    taken = optimizer.step([jt.array(start * 0.0), jt.array(start[:5] * 0.0)], 0.1, jt.array([True]))
    optimizer.skip()
    after = [value.numpy() for value in (*optimizer.parameters, *optimizer.exp_avg, *optimizer.exp_avg_sq)]
    assert not taken.numpy()[0] and optimizer.steps == 4
    for value, expected in zip(after, (start, start[:5], *moments[0], *moments[1]), strict=True):
        np.testing.assert_array_equal(value, expected)


SETTINGS = UpdateSettings(learning_rate=0.1, steps=5, beta_2=0.999, epsilon=1e-8, factors={"net": 0.5})


def entries(size=23, **changed):
    """Those of a parameter, with other numbers for some entries: name -> (index, number)."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=size).astype(np.float32) for name in PARTS}
    arrays["exp_avg_sq"] = np.abs(arrays["exp_avg_sq"])
    for name, (index, number) in changed.items():
        arrays[name][index] = number
    return Entries(**arrays)


@all_paths
def test_the_update_that_is_examined_is_the_one_that_adam_makes():
    own = entries()
    optimizer = Optimizer({"net": {"a": jt.array(own.weight)}})
    optimizer.restore(4, [own.exp_avg], [own.exp_avg_sq])
    optimizer.step([jt.array(own.gradient)], 0.1, None, SETTINGS.factors)
    for kind in (np.float32, np.float64):
        found = update_check.updated(own, SETTINGS.rate("net.a"), SETTINGS, kind)
        np.testing.assert_allclose(optimizer.parameters[0].numpy(), found[0], rtol=1e-6, atol=1e-7)


@all_paths
def test_the_entries_that_spoil_an_update_are_counted_and_named(monkeypatch):
    bad = entries(exp_avg_sq=([3, 7], [-1.0, -4.0]), exp_avg=(7, 2.5))
    (found,) = find_faults({"net.a": entries(), "net.b": bad}, SETTINGS)
    assert (found.name, found.count) == ("net.b", 2)
    assert found.words().startswith("2 NaN or Inf in the update of net.b (weight ")
    assert "exp_avg_sq -4 to -1 in these entries)" in found.words() and found.ranges["exp_avg"][1] == 2.5
    assert not find_faults({"net.a": entries()}, SETTINGS)
    monkeypatch.setattr(update_check, "is_updated", lambda these, rate, step: not (these.weight == 77.0).any())
    (found,) = find_faults({"net.a": entries(weight=(4, 77.0)), "net.b": entries()}, SETTINGS)
    assert found.words() == "NaN or Inf in the update of net.a, which is finite in NumPy"


def test_a_skipped_step_names_the_update():
    watcher, own = Guard(), entries(exp_avg_sq=(3, -1.0))
    update = StepUpdate({}, [jt.array(own.gradient)], SETTINGS, [jt.ones(3)], jt.array([False]))
    moments = {"exp_avg": {"net.a": own.exp_avg}, "exp_avg_sq": {"net.a": own.exp_avg_sq}}
    watcher.watch(INPUTS, update)
    assert not watcher.settle({"net.a": jt.array(own.weight)}, lambda: moments)
    (bad,) = watcher.take()
    assert bad.is_of_the_update and bad.sentence().startswith("step 7 skipped: 1 NaN or Inf in the update of net.a (")
