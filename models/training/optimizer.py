"""Adam (arXiv 1412.6980, algorithm 1), with epsilon added after the bias correction as in PyTorch.

Jittor's own adds it before: its steps shrink where gradients are about 1e-8, as a small network's often are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from models.backend import jt
from models.structs import Var

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """Moments of a list of parameters; `steps` counts the updates made."""

    def __init__(self, parameters: Sequence[Var]) -> None:
        self.parameters = list(parameters)
        self.steps = 0
        self.exp_avg = [jt.zeros_like(p).stop_grad() for p in self.parameters]
        self.exp_avg_sq = [jt.zeros_like(p).stop_grad() for p in self.parameters]

    def step(self, gradients: Sequence[Var], learning_rate: float, accepted: Var | None = None) -> None:
        """Update all parameters in place and start the computation; does not wait for it.

        Where `accepted`, bool [1], turns out False, nothing changes but `steps`: take that back with `refuse`.
        """
        self.steps += 1
        rate = learning_rate / (1.0 - BETA_1**self.steps)
        root = 1.0 / math.sqrt(1.0 - BETA_2**self.steps)
        for index, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            gradient = gradient.detach()
            first = (self.exp_avg[index] * BETA_1 + gradient * (1.0 - BETA_1)).stop_grad()
            second = (self.exp_avg_sq[index] * BETA_2 + gradient.sqr() * (1.0 - BETA_2)).stop_grad()
            update = first * rate / (second.sqrt() * root + EPSILON)
            if accepted is not None:
                keep = accepted.broadcast(parameter.shape)
                first = jt.ternary(keep, first, self.exp_avg[index]).stop_grad()
                second = jt.ternary(keep, second, self.exp_avg_sq[index]).stop_grad()
                update = jt.ternary(keep, update, jt.zeros_like(update))
            self.exp_avg[index], self.exp_avg_sq[index] = first, second
            # Outside no_grad: within it Jittor would freeze the parameter for ever.
            parameter.update((parameter - update).detach())
        jt.sync(self.parameters + self.exp_avg + self.exp_avg_sq)

    def refuse(self) -> None:
        """The last step was not accepted: the bias correction does not count it."""
        self.steps -= 1

    def restore(self, steps: int, exp_avg: Sequence[np.ndarray], exp_avg_sq: Sequence[np.ndarray]) -> None:
        """Go on from saved moments, in the order of the parameters."""
        self.steps = steps
        self.exp_avg = [jt.array(values).stop_grad() for values in exp_avg]
        self.exp_avg_sq = [jt.array(values).stop_grad() for values in exp_avg_sq]
