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

Update = tuple[list[Var], list[Var], list[Var], Var]  # parameters, first moments, second moments, taken (bool [1])


class Adam:
    """Moments of a list of parameters; `steps` counts the updates made."""

    def __init__(self, parameters: Sequence[Var]) -> None:
        self.parameters = list(parameters)
        self.steps = 0
        self.exp_avg = [jt.zeros_like(p).stop_grad() for p in self.parameters]
        self.exp_avg_sq = [jt.zeros_like(p).stop_grad() for p in self.parameters]

    def step(self, gradients: Sequence[Var], learning_rate: float, accepted: Var | None = None) -> Var:
        """Update all parameters in place and start the computation; does not wait for it.

        Returns whether the step was taken, bool [1]: `accepted`, and every number that it makes is finite. Where it
        turns out False nothing changes but `steps`: take that back with `refuse`.
        """
        self.steps += 1
        rate = learning_rate / (1.0 - BETA_1**self.steps)
        root = 1.0 / math.sqrt(1.0 - BETA_2**self.steps)
        if len(gradients) != len(self.parameters):
            raise ValueError(f"{len(gradients)} gradients for {len(self.parameters)} parameters")
        gradients = [gradient.detach() for gradient in gradients]
        accepted = jt.array(np.ones(1, bool)) if accepted is None else accepted
        compute = self._natively if native.is_available() else self._plainly
        parameters, self.exp_avg, self.exp_avg_sq, taken = compute(gradients, rate, root, accepted)
        for parameter, value in zip(self.parameters, parameters, strict=True):
            # Outside no_grad: within it Jittor would freeze the parameter for ever.
            parameter.update(value.detach())
        jt.sync([*self.parameters, *self.exp_avg, *self.exp_avg_sq, taken])
        return taken

    def _natively(self, gradients: list[Var], rate: float, root: float, accepted: Var) -> Update:
        """Parameters, first and second moments after a step, and whether it was taken, in one operation."""
        values = [self.parameters, gradients, self.exp_avg, self.exp_avg_sq]
        inputs = [accepted, *(value.detach() for group in values for value in group)]
        data = {"rate": rate, "root": root, "beta_1": BETA_1, "beta_2": BETA_2, "epsilon": EPSILON}
        numbers = ", ".join(f'(float)data["{name}"]' for name in data)
        outputs = [(tuple(value.shape), "float32") for value in self.parameters] * 3 + [((1,), "bool")]
        found = native.call("update.h", f"neus::adam(_inputs, _outputs, {{{numbers}}});", outputs, inputs, data)
        found = [value.stop_grad() for value in found]
        count = len(self.parameters)
        return found[:count], found[count : 2 * count], found[2 * count : 3 * count], found[-1]

    def _plainly(self, gradients: list[Var], rate: float, root: float, accepted: Var) -> Update:
        """What `_natively` computes, in plain Jittor: its specification, and its form on CUDA."""
        parameters, firsts, seconds = [], [], []
        old = zip(self.parameters, gradients, self.exp_avg, self.exp_avg_sq, strict=True)
        for parameter, gradient, first, second in old:
            firsts.append(first * BETA_1 + gradient * (1.0 - BETA_1))
            seconds.append(second * BETA_2 + gradient.sqr() * (1.0 - BETA_2))
            parameters.append(parameter - firsts[-1] * rate / (seconds[-1].sqrt() * root + EPSILON))
        total = sum(value.sum() for value in (*parameters, *firsts, *seconds))
        taken = jt.logical_and(accepted, jt.isfinite(total)).stop_grad()

        def gated(new: list[Var], kept: list[Var]) -> list[Var]:
            pairs = zip(new, kept, strict=True)
            return [jt.ternary(taken.broadcast(b.shape), a, b).stop_grad() for a, b in pairs]

        before = [parameter.detach() for parameter in self.parameters]
        return gated(parameters, before), gated(firsts, self.exp_avg), gated(seconds, self.exp_avg_sq), taken

    def refuse(self) -> None:
        """The last step was not accepted: the bias correction does not count it."""
        self.steps -= 1

    def restore(self, steps: int, exp_avg: Sequence[np.ndarray], exp_avg_sq: Sequence[np.ndarray]) -> None:
        """Go on from saved moments, in the order of the parameters."""
        self.steps = steps
        self.exp_avg = [jt.array(values).stop_grad() for values in exp_avg]
        self.exp_avg_sq = [jt.array(values).stop_grad() for values in exp_avg_sq]
