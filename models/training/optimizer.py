"""Adam (arXiv 1412.6980, algorithm 1), with epsilon added after the bias correction as in PyTorch.

Jittor's own adds it before: its steps shrink where gradients are about 1e-8, as a small network's often are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from models.backend import jt
from models.ops import native
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
        if len(gradients) != len(self.parameters):
            raise ValueError(f"{len(gradients)} gradients for {len(self.parameters)} parameters")
        gradients = [gradient.detach() for gradient in gradients]
        compute = self._natively if native.is_available() else self._plainly
        parameters, self.exp_avg, self.exp_avg_sq = compute(gradients, rate, root, accepted)
        for parameter, value in zip(self.parameters, parameters, strict=True):
            # Outside no_grad: within it Jittor would freeze the parameter for ever.
            parameter.update(value.detach())
        jt.sync(self.parameters + self.exp_avg + self.exp_avg_sq)

    def _natively(self, gradients: list[Var], rate: float, root: float, accepted: Var | None) -> list[list[Var]]:
        """Parameters, first and second moments after a step, in one operation."""
        values = [self.parameters, gradients, self.exp_avg, self.exp_avg_sq]
        verdict = jt.array(np.ones(1, bool)) if accepted is None else accepted
        inputs = [verdict, *(value.detach() for group in values for value in group)]
        data = {"rate": rate, "root": root, "beta_1": BETA_1, "beta_2": BETA_2, "epsilon": EPSILON}
        numbers = ", ".join(f'(float)data["{name}"]' for name in data)
        outputs = [(tuple(value.shape), "float32") for value in self.parameters] * 3
        found = native.call("update.h", f"neus::adam(_inputs, _outputs, {{{numbers}}});", outputs, inputs, data)
        found = [value.stop_grad() for value in found]
        count = len(self.parameters)
        return [found[:count], found[count : 2 * count], found[2 * count :]]

    def _plainly(self, gradients: list[Var], rate: float, root: float, accepted: Var | None) -> list[list[Var]]:
        """What `_natively` computes, in plain Jittor: its specification, and its form on CUDA."""
        parameters, firsts, seconds = [], [], []
        for parameter, gradient, first, second in zip(
            self.parameters, gradients, self.exp_avg, self.exp_avg_sq, strict=True
        ):
            new_first = first * BETA_1 + gradient * (1.0 - BETA_1)
            new_second = second * BETA_2 + gradient.sqr() * (1.0 - BETA_2)
            update = new_first * rate / (new_second.sqrt() * root + EPSILON)
            if accepted is not None:
                keep = accepted.broadcast(parameter.shape)
                new_first, new_second = jt.ternary(keep, new_first, first), jt.ternary(keep, new_second, second)
                update = jt.ternary(keep, update, jt.zeros_like(update))
            firsts.append(new_first.stop_grad())
            seconds.append(new_second.stop_grad())
            parameters.append((parameter - update).detach())
        return [parameters, firsts, seconds]

    def refuse(self) -> None:
        """The last step was not accepted: the bias correction does not count it."""
        self.steps -= 1

    def restore(self, steps: int, exp_avg: Sequence[np.ndarray], exp_avg_sq: Sequence[np.ndarray]) -> None:
        """Go on from saved moments, in the order of the parameters."""
        self.steps = steps
        self.exp_avg = [jt.array(values).stop_grad() for values in exp_avg]
        self.exp_avg_sq = [jt.array(values).stop_grad() for values in exp_avg_sq]
