"""Fields on multiresolution hash grids with a small network (Instant-NGP, arXiv 2201.05989): distance and density.

The point is an additional input of the network, and the gradient is exact. A training activates the levels one after
the other (Neuralangelo, arXiv 2306.03092, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from models.config.blocks import BETA_1
from models.fields.conf import DensityGridConfig, GridConfig, SdfGridConfig
from models.fields.layers import Layered, first_table, uniform_init
from models.fields.protocol import DistanceAtWeights
from models.machine.backend import jt
from models.ops.elementwise import hard_clip
from models.ops.grid_sdf import active_weights, grid_sdf, grid_values, with_network
from models.ops.network import Weights
from models.ops.sizes import POINT, GridSizes
from models.ops.update import AdamStep, Update, adam
from models.structs import Var

# standard deviation of the last layer's initial weights for the feature: large enough that features differ
FEATURE_SPREAD = 0.1
# Of Adam, to initial distances: the mean error no longer falls
FITTING_STEPS, FITTING_RATE = 200, 0.01
# Clamp of the network's output: e^15 is opaque within a millionth of the sphere's radius, and its gradient is finite.
LARGEST_LOG = 15.0


class GridField(Layered):
    """Grid and network with the first `active` levels."""

    def __init__(
        self, conf: GridConfig, rng: np.random.Generator, layers: Iterable[tuple[np.ndarray, np.ndarray]]
    ) -> None:
        """`layers`: weight [out, in] and bias [out] of each, drawn after the table."""
        super().__init__()
        self.conf = conf
        self.active = conf.levels
        self.table = first_table(conf.sizes, rng)
        self.add_layers(layers, weight_norm=False)

    def activate(self, first: int, progress: float) -> None:
        """Activate `first` levels at progress 0, and further ones at equal intervals, all at progress 1."""
        levels = self.conf.levels
        first = min(first, levels)
        self.active = min(levels, first + int((levels - first + 1) * progress))

    @property
    def sizes(self) -> GridSizes:
        """The layout of the active levels, with the network."""
        conf = self.conf
        return with_network(
            replace(conf.sizes, active=self.active), [conf.d_hidden] * conf.n_layers, 1 + conf.d_feature
        )

    def weights(self, sizes: GridSizes) -> Weights:
        """The current layers for the operations with this layout."""
        return active_weights([(layer.matrix(), layer.bias) for layer in self.layers()], sizes)


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
        given = {"table": self.table, "weights": weights, "sizes": sizes}
        return DistanceAtWeights(
            lambda points: grid_values(points, **given)[:, :1], lambda points: grid_sdf(points, **given)
        )


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


class DensityGrid(GridField):
    """Grid and network; the first output is the logarithm of the density."""

    def __init__(self, conf: DensityGridConfig, rng: np.random.Generator) -> None:
        super().__init__(conf, rng, _even(rng, conf))

    def evaluate(self, points: Var) -> tuple[Var, Var]:
        """Density [P, 1] and feature [P, F] at points [P, 3]; differentiable in the parameters."""
        sizes = self.sizes
        values = grid_values(points, self.table, self.weights(sizes), sizes)
        return density_of(values[:, :1]), values[:, 1:]

    def with_slope(self, points: Var) -> tuple[Var, Var, Var]:
        """The same, and the gradient of the logarithm of the density [P, 3]."""
        sizes = self.sizes
        found = grid_sdf(points, self.table, self.weights(sizes), sizes)
        return density_of(found.sdf), found.feature, found.gradient


def _even(rng: np.random.Generator, conf: DensityGridConfig) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Weight [out, in] and bias [out] of each layer, for a density of about `conf.density` everywhere."""
    for index, (inputs, outputs) in enumerate(conf.widths):
        weight, bias = uniform_init(rng, inputs, outputs)
        if index == conf.n_layers:
            bias[0] = math.log(conf.density)
        yield weight, bias


def density_of(raw: Var) -> Var:
    """exp(raw), any shape, at most e^LARGEST_LOG; the gradient that increases the density is never 0."""
    return hard_clip(raw, -LARGEST_LOG, LARGEST_LOG).exp()
