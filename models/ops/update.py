"""One step of Adam over a group of parameters, and the readings by which a step is judged beforehand.

Adam: arXiv 1412.6980, algorithm 1, with epsilon added after the bias correction as in PyTorch. Jittor's own adds it
before: its steps shrink where gradients are about 1e-8, as a small network's often are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.backend import jt
from models.ops.kernel import Kernel
from models.ops.source import Source
from models.structs import Var

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class AdamStep:
    """The layout of a step."""

    rate: float  # learning rate over the bias correction of the first moment
    root: float  # 1 over the root of the bias correction of the second
    beta_1: float = BETA_1
    beta_2: float = BETA_2
    epsilon: float = EPSILON


@dataclass(frozen=True)
class Readings:
    """The layout of what is looked at: how many of the Vars are gradients."""

    gradients: int


@dataclass(frozen=True)
class Group:
    """Parameters with what a step reads and replaces, entry by entry."""

    parameters: list[Var]
    exp_avg: list[Var]
    exp_avg_sq: list[Var]


SOURCE = Source("update.h", (AdamStep, Readings), lists=True)


def _adam_reference(group: Group, gradients: Sequence[Var], step: AdamStep, accepted: Var | None) -> Group:
    """The group after a step; where `accepted`, bool [1], is False, as it was. Nothing is differentiated."""
    found = Group([], [], [])
    values = (group.parameters, gradients, group.exp_avg, group.exp_avg_sq)
    for parameter, gradient, first, second in zip(*values, strict=True):
        new_first = first * step.beta_1 + gradient * (1.0 - step.beta_1)
        new_second = second * step.beta_2 + gradient.sqr() * (1.0 - step.beta_2)
        update = new_first * step.rate / (new_second.sqrt() * step.root + step.epsilon)
        if accepted is not None:
            keep = accepted.broadcast(parameter.shape)
            new_first, new_second = jt.ternary(keep, new_first, first), jt.ternary(keep, new_second, second)
            update = jt.ternary(keep, update, jt.zeros_like(update))
        found.parameters.append((parameter - update).detach())
        found.exp_avg.append(new_first.stop_grad())
        found.exp_avg_sq.append(new_second.stop_grad())
    return found


def _adam_native(group: Group, gradients: Sequence[Var], step: AdamStep, accepted: Var | None) -> Group:
    """One operation."""
    verdict = jt.array(np.ones(1, bool)) if accepted is None else accepted
    values = (group.parameters, gradients, group.exp_avg, group.exp_avg_sq)
    inputs = [verdict, *(value.detach() for entries in values for value in entries)]
    outputs = [(tuple(value.shape), "float32") for value in group.parameters] * 3
    found = [value.stop_grad() for value in SOURCE.call("adam", step, outputs, inputs)]
    count = len(group.parameters)
    return Group(found[:count], found[count : 2 * count], found[2 * count :])


def _readings_reference(loss: Var, gradients: Sequence[Var], parameters: Sequence[Var]) -> list[Var]:
    """The loss, each gradient's sum of squares and the sum of all parameters, G + 2 numbers in one Var or several.

    What is not finite in a step is not finite in here. The parameters are looked at themselves because a ReLU, or a
    clip, swallows their NaN.

    A gradient beyond 1e19 overflows its square; Adam's second moment would too, so it rightly counts.
    """
    total = sum(value.detach().sum() for value in parameters)
    values = [loss.detach(), *(gradient.detach().sqr().sum() for gradient in gradients), total]
    return [value.stop_grad() for value in values]


def _readings_native(loss: Var, gradients: Sequence[Var], parameters: Sequence[Var]) -> list[Var]:
    """One operation."""
    inputs = [value.detach() for value in (loss, *gradients, *parameters)]
    outputs = [((len(gradients) + 2,), "float32")]
    return [value.stop_grad() for value in SOURCE.call("step_readings", Readings(len(gradients)), outputs, inputs)]


def _finite_reference(values: Sequence[Var]) -> Var:
    """Whether every reading is finite, bool [1]."""
    return jt.isfinite(sum(value.sum() for value in values)).stop_grad()


def _finite_native(values: Sequence[Var]) -> Var:
    """The same by the bits: the fast maths that kernels are built with takes every number for finite."""
    return SOURCE.call("all_finite", Readings(0), [((1,), "bool")], list(values))[0].stop_grad()


adam = Kernel(_adam_reference, cpu=_adam_native)
readings = Kernel(_readings_reference, cpu=_readings_native)
all_finite = Kernel(_finite_reference, cpu=_finite_native)
