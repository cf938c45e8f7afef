"""What can be added from outside: an optimiser and a schedule, each by one function, one line and one key."""

import numpy as np
import pytest
from runs import ROOT, SHORT, contents, run, saved
from test_guard import entries
from trainings import stopped_after

from models.config.optimizers import OPTIMIZERS, UpdateSettings
from models.config.schedules import DECAYS
from models.config.strict import ConfigError
from models.machine.backend import jt
from models.methods.conf import load_config
from models.training.optimizer import Optimizer
from models.training.update_check import find_faults

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
    """The two lines."""
    monkeypatch.setitem(OPTIMIZERS, "descent", descent)
    monkeypatch.setitem(DECAYS, "straight", straight)


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


def test_a_step_that_is_not_finite_changes_nothing_and_its_fault_is_found():
    for slope, verdict in ((np.inf, True), (1, False)):
        optimizer = Optimizer({"net": {"w": jt.ones(3)}}, name="descent")
        gradient = jt.array(np.float32([1, slope, 1]))
        assert not optimizer.step([gradient], 0.1, jt.array([verdict])).item()
        assert (optimizer.parameters[0].numpy() == 1).all() and not optimizer.named_moments["exp_avg"]["net.w"].any()
    bad = entries(exp_avg=(5, np.inf), exp_avg_sq=(3, -1.0))  # it does not read the second moment
    (found,) = find_faults({"net.a": bad}, UpdateSettings(0.1, 3, 0.999, 1e-8, optimizer="descent"))
    assert found.words().startswith("1 NaN or Inf in the update of net.a (")


@pytest.mark.slow
def test_a_conf_trains_with_both_resumes_bit_for_bit_and_skips_a_step(tmp_path, monkeypatch, capsys):
    settings = (*LONG, "train.optimizer=descent", "train.learning_rate_decay=straight", "train.learning_rate=0.05")
    assert run(tmp_path / "a", settings=settings) == 0
    assert run(stopped_after(3, tmp_path / "a", tmp_path / "b"), "--is_continue", settings=settings) == 0
    ours = saved(tmp_path / "a", 6)
    assert contents(ours) == contents(saved(tmp_path / "b", 6))
    assert not any(values.any() for values in ours.moments["exp_avg_sq"].values())
    assert any(values.any() for values in ours.moments["exp_avg"].values())
    monkeypatch.setitem(OPTIMIZERS, "descent", lambda value, *rest: (value * np.inf, *descent(value, *rest)[1:]))
    assert run(tmp_path / "c", settings=settings) == 1
    assert "in the update of" in capsys.readouterr().err


def test_a_name_that_is_none_is_one_sentence_with_those_there_are():
    for key, known in (("optimizer", OPTIMIZERS), ("learning_rate_decay", DECAYS)):
        with pytest.raises(ConfigError, match=f"train.{key} = 'adom': must be one of {', '.join(known)}"):
            load_config(ROOT / "confs/debug.conf", overrides=(f"train.{key}=adom",))
