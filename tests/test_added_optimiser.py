"""What can be added from outside: an optimiser and a schedule, each by one function, one line and one key."""

import numpy as np
import pytest
from runs import SHORT, contents, run, saved
from trainings import stopped_after

from models.config.blocks import DECAYS, OPTIMIZERS
from models.machine.backend import jt
from models.training.optimizer import CURVES, RULES, Optimizer

MOMENTUM = 0.8
LONG = ("train.end_iter=6", "train.warm_up_end=0", *SHORT[2:])


def descent(value, gradient, first, second, rate, step):
    """Gradient descent with momentum."""
    first = first * MOMENTUM + gradient
    return value - first * rate, first, second


def straight(done, end):
    """A line."""
    return 1.0 - (1.0 - end) * done


@pytest.fixture(autouse=True)
def added(monkeypatch):
    """The two entries and their names."""
    assert list(RULES) == OPTIMIZERS and list(CURVES) == DECAYS
    monkeypatch.setitem(RULES, "descent", descent)
    monkeypatch.setitem(CURVES, "straight", straight)
    OPTIMIZERS.append("descent")
    DECAYS.append("straight")
    yield
    OPTIMIZERS.pop(), DECAYS.pop()


def test_an_optimiser_moves_the_weights_as_its_function_says():
    start, rates = np.float32([1.0, -2.0]), [0.1, 0.2, 0.05]
    gradients = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    optimizer = Optimizer({"net": {"w": jt.array(start)}}, name="descent")
    value, speed = start.astype(np.float64), 0.0
    for rate, gradient in zip(rates, gradients, strict=True):
        assert optimizer.step([jt.array(gradient)], rate, None, {"net": 0.5}).item()
        speed = speed * MOMENTUM + gradient.astype(np.float64)
        value = value - speed * rate * 0.5
    np.testing.assert_allclose(optimizer.parameters[0].numpy(), value, rtol=1e-6)
    np.testing.assert_allclose(optimizer.named_moments["exp_avg"]["net.w"], speed, rtol=1e-6)


def test_a_step_that_is_not_finite_changes_nothing():
    for slope, verdict in ((np.inf, True), (1, False)):
        optimizer = Optimizer({"net": {"w": jt.ones(3)}}, name="descent")
        gradient = jt.array(np.float32([1, slope, 1]))
        assert not optimizer.step([gradient], 0.1, jt.array([verdict])).item()
        assert (optimizer.parameters[0].numpy() == 1).all() and not optimizer.named_moments["exp_avg"]["net.w"].any()


@pytest.mark.slow
def test_a_conf_trains_with_both_resumes_bit_for_bit_and_skips_a_step(tmp_path, monkeypatch, capsys):
    settings = (*LONG, "train.optimizer=descent", "train.learning_rate_decay=straight", "train.learning_rate=0.05")
    assert run(tmp_path / "a", settings=settings) == 0
    assert run(stopped_after(3, tmp_path / "a", tmp_path / "b"), "--is_continue", settings=settings) == 0
    ours = saved(tmp_path / "a", 6)
    assert contents(ours) == contents(saved(tmp_path / "b", 6))
    monkeypatch.setitem(RULES, "descent", lambda value, *rest: (value * np.inf, *descent(value, *rest)[1:]))
    assert run(tmp_path / "c", settings=settings) == 1
    assert "in the update of" in capsys.readouterr().err
