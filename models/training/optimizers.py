"""Optimisers: the update of a parameter and its two moments in a step; `train.optimizer` names one of RULES.

A rule uses only operators that Jittor's Vars and NumPy arrays both support: Vars are trained, arrays are used to
analyse a skipped step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from models.config.blocks import ADAM, BETA_1

Array = Any  # a Var or a NumPy array, of one floating-point type within a call


@dataclass(frozen=True)
class UpdateSettings:
    """The scalars of one step."""

    learning_rate: float
    steps: int  # number of updates, including this one
    beta_2: float  # decay rate of the second moment
    epsilon: float  # epsilon, added to the root of the second moment
    factors: Mapping[str, float] = field(default_factory=dict)  # factors on the rate, by network or `<network>.<name>`
    optimizer: str = ADAM

    def rate(self, name: str) -> float:
        """The learning rate of the parameter `<network>.<name>`."""
        return self.learning_rate * self.factors.get(name, self.factors.get(name.partition(".")[0], 1.0))


# (parameter, gradient, first and second moment, rate of the parameter, numbers of the step) -> parameter and moments
# after it. Moments start at zero, and the second one must not become negative; a rule that needs none returns them.
Rule = Callable[[Array, Array, Array, Array, float, UpdateSettings], tuple[Array, Array, Array]]


def adam(
    value: Array, gradient: Array, first: Array, second: Array, rate: float, step: UpdateSettings
) -> tuple[Array, Array, Array]:
    """Adam (arXiv 1412.6980, algorithm 1), with epsilon added after the bias correction, as in PyTorch."""
    first = first * BETA_1 + gradient * (1.0 - BETA_1)
    second = second * step.beta_2 + gradient * gradient * (1.0 - step.beta_2)
    root = second**0.5 * (1.0 / math.sqrt(1.0 - step.beta_2**step.steps))
    return value - first * (rate / (1.0 - BETA_1**step.steps)) / (root + step.epsilon), first, second


RULES: dict[str, Rule] = {ADAM: adam}
