"""One step of Adam over a group of parameters, and the readings by which the guard checks a step.

Adam: arXiv 1412.6980, algorithm 1, with epsilon added after the bias correction as in PyTorch. Jittor adds it before,
which shrinks steps where gradients are about 1e-8, as they often are in small networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from models.config.blocks import BETA_1
from models.machine.backend import jt
from models.ops.elementwise import is_finite
from models.ops.source import Kernel, Source
from models.structs import Var

BETA_2, EPSILON = 0.999, 1e-8  # defaults of the conf
SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class AdamStep:
    """The sizes of a step."""

    root: np.float64  # 1 over the root of the bias correction of the second moment
    beta_1: np.float64
    beta_2: np.float64
    epsilon: np.float64

    @classmethod
    def after(cls, steps: int, beta_2: float = BETA_2, epsilon: float = EPSILON) -> AdamStep:
        """The sizes and factors of step number `steps`, counted from 1."""
        root = 1.0 / math.sqrt(1.0 - beta_2**steps)
        return cls(*map(np.float64, (root, BETA_1, beta_2, epsilon)))


@dataclass(frozen=True)
class Readings:
    """The layout of the readings: the number of Vars that are gradients."""

    gradients: int


@dataclass(frozen=True)
class Update:
    """The inputs and the results of an update, per parameter."""

    parameters: list[Var]
    exp_avg: list[Var]
    exp_avg_sq: list[Var]
    taken: Var  # bool [1]: before a step whether it may be taken, after it whether it was


SOURCE = Source("update.h", (AdamStep, Readings), lists=True)


def adam_of(value: Any, gradient: Any, first: Any, second: Any, rate: float, step: AdamStep) -> tuple[Any, Any, Any]:
    """A parameter and its moments after a step; Vars or NumPy arrays of one floating-point type.

    rate: learning rate over the bias correction of the first moment.
    """
    first = first * step.beta_1 + gradient * (1.0 - step.beta_1)
    second = second * step.beta_2 + gradient * gradient * (1.0 - step.beta_2)
    return value - first * rate / (second**0.5 * step.root + step.epsilon), first, second


def _adam_reference(before: Update, gradients: Sequence[Var], rates: Sequence[float], step: AdamStep) -> Update:
    """The update after a step by `adam_of`; not differentiable. See `updated_by`."""
    return updated_by(partial(adam_of, step=step), before, gradients, rates)


def updated_by(
    rule: Callable[..., tuple[Var, Var, Var]], before: Update, gradients: Sequence[Var], rates: Sequence[float]
) -> Update:
    """The update by a rule, (parameter, gradient, moments, rate) -> parameter and moments, stored as float32.

    Computed in float64, as on the CPU: see csrc/both/adam.h, also for why subnormal moments are set to 0. If it may not
    be taken, or any value is not finite, all are unchanged and `taken` is False.
    """
    rows = zip(before.parameters, gradients, before.exp_avg, before.exp_avg_sq, strict=True)
    updates = [rule(*(value.float64() for value in row), rate) for row, rate in zip(rows, rates, strict=True)]
    parameters, firsts, seconds = ([value.float32() for value in values] for values in zip(*updates, strict=True))
    firsts, seconds = (  # with 0 for subnormal numbers
        [jt.ternary(value.abs() < SMALLEST_NORMAL, jt.zeros_like(value), value) for value in values]
        for values in (firsts, seconds)
    )
    total = sum(value.sum() for value in (*parameters, *firsts, *seconds))
    taken = jt.logical_and(before.taken, is_finite(total)).stop_grad()

    def chosen(new: list[Var], before: list[Var]) -> list[Var]:
        pairs = zip(new, before, strict=True)
        return [jt.ternary(taken.broadcast(old.shape), value, old.detach()).stop_grad() for value, old in pairs]

    return Update(
        chosen(parameters, before.parameters), chosen(firsts, before.exp_avg), chosen(seconds, before.exp_avg_sq), taken
    )


def _adam_native(before: Update, gradients: Sequence[Var], rates: Sequence[float], step: AdamStep) -> Update:
    values = (before.parameters, gradients, before.exp_avg, before.exp_avg_sq)
    inputs = [before.taken, jt.array(np.array(rates, np.float32))]
    inputs += [value for entries in values for value in entries]
    count = len(before.parameters)
    outputs = [value.shape for value in before.parameters] * 3 + [((1,), "bool")]
    *results, taken = SOURCE.detached("adam", step, outputs, inputs)
    return Update(results[:count], results[count : 2 * count], results[2 * count :], taken)


def _readings_reference(loss: Var, gradients: Sequence[Var], parameters: Sequence[Var]) -> tuple[list[Var], Var]:
    """The loss, the L1 norm of each gradient and the sum of all parameters, G + 2 numbers in one Var or several, and
    whether all of them are finite, bool [1].

    If any value of a step is not finite, at least one of these is not finite. The parameters are included because a
    ReLU or a clip may not propagate their NaN to the loss.
    """
    total = sum(value.detach().sum() for value in parameters)
    values = [loss.detach(), *(gradient.detach().abs().sum() for gradient in gradients), total]
    return [value.stop_grad() for value in values], is_finite(sum(values)).stop_grad()


def _readings_native(loss: Var, gradients: Sequence[Var], parameters: Sequence[Var]) -> tuple[list[Var], Var]:
    inputs, outputs = [loss, *gradients, *parameters], [(len(gradients) + 2,), ((1,), "bool")]
    values, is_good = SOURCE.detached("step_readings", Readings(len(gradients)), outputs, inputs)
    return [values], is_good


adam = Kernel(_adam_reference, cpu=_adam_native, cuda=_adam_native)
readings = Kernel(_readings_reference, cpu=_readings_native, cuda=_readings_native)
