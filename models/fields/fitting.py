"""A field that begins with given distances instead of a sphere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from models.config.blocks import BETA_1
from models.fields.protocol import Draw
from models.machine.backend import jt
from models.ops.update import AdamStep, Update, adam
from models.structs import Var

# Of Adam, to initial distances: the mean error no longer falls
FITTING_STEPS, FITTING_RATE = 200, 0.01


def fit_distances(parameters: list[Var], distance: Callable[[Var], Var], draw: Draw) -> None:
    """Fit the parameters by Adam to the mean absolute error of `distance`, [P, 3] -> [P, 1], at the points drawn."""
    firsts, seconds = ([jt.zeros(value.shape) for value in parameters] for _ in range(2))
    for step in range(1, FITTING_STEPS + 1):
        points, distances = map(jt.array, draw())
        gradients = jt.grad((distance(points) - distances).abs().mean(), parameters)
        before = Update(parameters, firsts, seconds, jt.array(np.ones(1, bool)))
        rate = FITTING_RATE / (1.0 - BETA_1**step)
        after = adam(before, gradients, [rate] * len(parameters), AdamStep.after(step))
        jt.sync([*after.parameters, *after.exp_avg, *after.exp_avg_sq])
        for parameter, value in zip(parameters, after.parameters, strict=True):
            parameter.update(value.detach())
            parameter.start_grad()
        firsts, seconds = after.exp_avg, after.exp_avg_sq
