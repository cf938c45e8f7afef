"""A signed distance on a multiresolution hash grid with a small softplus network.

Instant-NGP (arXiv 2201.05989) with the point as an additional input and an exact gradient. The training activates the
levels one after the other (Neuralangelo, arXiv 2306.03092, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from models.config.blocks import BETA_1
from models.fields.conf import NUMERICAL, SdfGridConfig
from models.fields.grid_field import GridField
from models.fields.protocol import DistanceAtWeights
from models.machine.backend import jt
from models.ops.grid_sdf import grid_sdf, grid_values
from models.ops.sizes import POINT
from models.ops.update import AdamStep, Update, adam
from models.structs import FieldOutput, Var

# standard deviation of the last layer's initial weights for the feature: large enough that features differ
FEATURE_SPREAD = 0.1
# Of Adam, to initial distances: the mean error no longer falls
FITTING_STEPS, FITTING_RATE = 200, 0.01


class SDFGrid(GridField):
    """Grid and network; a `DistanceField`."""

    conf: SdfGridConfig

    def __init__(self, conf: SdfGridConfig, rng: np.random.Generator) -> None:
        super().__init__(conf, rng, _sphere(rng, conf))

    def begin_with_sphere(self, radius: float, is_inverted: bool = False) -> None:
        """Reset the initial output to that of a sphere of this radius; inverted: positive within it."""
        last, sign = self.layers()[-1], -1.0 if is_inverted else 1.0
        weight, bias = last.weight.numpy().copy(), last.bias.numpy().copy()
        weight[0], bias[0] = sign * np.abs(weight[0]), -sign * radius
        for parameter, values in ((last.weight, weight), (last.bias, bias)):
            parameter.update(jt.array(values))
            parameter.start_grad()

    def begin_with(self, draw: Callable[[], tuple[np.ndarray, np.ndarray]], levels: int) -> None:
        """Fit the initial output of the first levels to signed distances.

        `draw` returns points float32 [P, 3] and their distances [P, 1], others at each call.
        """
        self.activate(levels, 0.0)
        sizes = self.sizes
        parameters = [self.table, *(value for layer in self.layers() for value in (layer.weight, layer.bias))]
        firsts, seconds = ([jt.zeros(value.shape) for value in parameters] for _ in range(2))
        for step in range(1, FITTING_STEPS + 1):
            points, distances = map(jt.array, draw())
            found = grid_values(points, table=self.table, weights=self.weights(sizes), sizes=sizes)[:, :1]
            gradients = jt.grad((found - distances).abs().mean(), parameters)
            before = Update(parameters, firsts, seconds, jt.array(np.ones(1, bool)))
            rate = FITTING_RATE / (1.0 - BETA_1**step)
            after = adam(before, gradients, [rate] * len(parameters), AdamStep.after(step))
            jt.sync([*after.parameters, *after.exp_avg, *after.exp_avg_sq])
            for parameter, value in zip(parameters, after.parameters, strict=True):
                parameter.update(value.detach())
                parameter.start_grad()
            firsts, seconds = after.exp_avg, after.exp_avg_sq

    def at_weights(self) -> DistanceAtWeights:
        """The field with its current parameters."""
        sizes = self.sizes
        weights = self.weights(sizes)
        values = partial(grid_values, table=self.table, weights=weights, sizes=sizes)
        exact = partial(grid_sdf, table=self.table, weights=weights, sizes=sizes)
        step = 2.0 / sizes.resolutions[sizes.active - 1]  # a cell of the finest level (Neuralangelo, section 3.1)
        return DistanceAtWeights(
            distance=lambda points: values(points)[:, :1],
            evaluate=partial(_by_differences, values, step) if self.conf.gradient == NUMERICAL else exact,
        )


def _by_differences(values: Callable[[Var], Var], step: float, points: Var) -> FieldOutput:
    """The field with its gradient by central differences, which smooths over several cells."""
    here = values(points)
    moves = jt.array(step * np.concatenate([np.eye(POINT), -np.eye(POINT)]).astype(np.float32))
    moved = (points.unsqueeze(0) + moves.unsqueeze(1)).reshape((-1, POINT)).stop_grad()
    around = values(moved)[:, 0].reshape((2, POINT, points.shape[0])).transpose((0, 2, 1))
    return FieldOutput(here[:, :1], here[:, 1:], (around[0] - around[1]) * (0.5 / step))


def _sphere(rng: np.random.Generator, conf: SdfGridConfig) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Weight [out, in] and bias [out] of each layer: approximately the distance from a sphere of radius `conf.radius`.

    SAL, arXiv 1911.10414, section 5, for the point alone: the features have zero weights.
    """
    *hidden, (width, last) = conf.widths
    for index, (inputs, outputs) in enumerate(hidden):
        weight = rng.normal(0.0, math.sqrt(2.0 / outputs), (outputs, inputs))
        if index == 0:
            weight[:, POINT:] = 0.0
        yield weight, np.zeros(outputs)
    weight = rng.normal(0.0, FEATURE_SPREAD, (last, width))
    weight[0] = rng.normal(math.sqrt(math.pi / width), 1e-4, width)
    bias = np.zeros(last)
    bias[0] = -conf.radius
    yield weight, bias
