"""Adam against its float64 statement."""

import numpy as np
import oracles
import pytest
from forms import FORMS, in_form, only_on_the_cpu
from trainings import unallocated

from models.machine import memory
from models.machine.backend import jt
from models.ops.update import readings
from models.training.optimizer import Optimizer

STEPS = 10
START = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
RATES = [0.0, *(1e-2 / step for step in range(1, STEPS))]  # the first rate is 0, as in training


@pytest.fixture(params=FORMS)
def form(request):
    """Each form of the update."""
    with in_form(request.param):
        yield


def adam_of(*parameters):
    return Optimizer({"network": {str(index): value for index, value in enumerate(parameters)}})


def random_gradients(scale):
    return np.random.default_rng(1).normal(0.0, scale, (STEPS, *START.shape)).astype(np.float32)


def optimised(gradients, optimizer, rates=RATES):
    """The parameter after each step."""
    found = []
    for gradient, rate in zip(gradients, rates, strict=True):
        optimizer.step([jt.array(gradient)], rate)
        found.append(optimizer.parameters[0].numpy())
    return found


# At 1e-8 the place of epsilon decides the length of the steps: added before the bias correction, as Jittor's own
# optimiser does, it makes them about seven times shorter here.
@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e-12, 1e4])
def test_ten_steps_agree_with_the_oracle_for_any_size_of_gradient(scale):
    gradients = random_gradients(scale)
    # Differences to the start are compared: a tiny step would drown in the parameter.
    start = np.zeros_like(START)
    actual = optimised(gradients, adam_of(jt.array(start)))
    expected = oracles.adam(start, gradients.astype(np.float64), RATES)
    for step, (found, exact) in enumerate(zip(actual, expected, strict=True)):
        largest = np.abs(exact).max()
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5 * largest, err_msg=f"step {step}")


def test_a_step_and_its_readings_are_the_same_bits_for_any_threads(openmp_threads):
    rng = np.random.default_rng(4)
    shapes = [(40_001, 2), (3,), (17_000,)]
    starts, gradients = ([rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(2))

    def found(threads):
        openmp_threads(threads)
        optimizer, given = adam_of(*map(jt.array, starts)), [jt.array(gradient) for gradient in gradients]
        (seen,), _ = readings(jt.array([0.5]), given, optimizer.parameters)
        seen = seen.numpy()
        optimizer.step(given, 1e-2)
        return [seen, *(value.numpy() for value in (*optimizer.parameters, *optimizer.exp_avg, *optimizer.exp_avg_sq))]

    first = found(1)
    magnitudes = [np.abs(gradient.astype(np.float64)).sum() for gradient in gradients]
    total = sum(start.astype(np.float64).sum() for start in starts)
    np.testing.assert_allclose(first[0], [0.5, *magnitudes, total], rtol=1e-5)
    for threads in (2, 3):
        for actual, expected in zip(found(threads), first, strict=True):
            np.testing.assert_array_equal(actual, expected)


@only_on_the_cpu
@pytest.mark.usefixtures("form")
def test_an_update_that_finds_no_memory_leaves_all_as_it_was():
    optimizer, gradient = adam_of(jt.array(START)), jt.array(START)
    optimised(random_gradients(1.0)[:3], optimizer, RATES[:3])
    before = optimizer.steps, optimizer.parameters[0].numpy(), optimizer.named_moments
    with pytest.raises(RuntimeError, match="Unable to alloc") as caught:
        optimizer.step([gradient + unallocated(gradient)], 1e-2)
    memory.release_after_failure(caught.value)
    np.testing.assert_equal((optimizer.steps, optimizer.parameters[0].numpy(), optimizer.named_moments), before)
