"""Fields on multiresolution hash grids with a small network (Instant-NGP, arXiv 2201.05989): distance and density.

The point is an additional input of the network, and the gradient is exact. A training activates the levels one after
the other (Neuralangelo, arXiv 2306.03092, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np

from models.fields.conf import DensityGridConfig, GridConfig, SdfGridConfig
from models.fields.layers import Layered, first_table, fit_distances, uniform_init
from models.fields.protocol import BoundDistance, Draw
from models.machine.backend import jt
from models.ops.elementwise import hard_clip
from models.ops.grid_sdf import active_weights, grid_sdf, grid_values, with_network
from models.ops.network import Weights
from models.ops.sizes import POINT, GridSizes
from models.structs import Var

# standard deviation of the last layer's initial weights for the feature: large enough that features differ
FEATURE_SPREAD = 0.1
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

    @property
    def levels(self) -> int:
        """The number of levels."""
        return self.conf.levels

    def activate(self, first: int, progress: float) -> None:
        """See `Leveled`."""
        first = min(first, self.levels)
        self.active = min(self.levels, first + int((self.levels - first + 1) * progress))

    @property
    def sizes(self) -> GridSizes:
        """The layout of the active levels, with the network."""
        return _sizes(self.conf, self.active)

    def weights(self, sizes: GridSizes) -> Weights:
        """The current layers for the operations with this layout."""
        return active_weights([(layer.matrix(), layer.bias) for layer in self.layers()], sizes)


@cache
def _sizes(conf: GridConfig, active: int) -> GridSizes:
    """The layout of a grid with so many active levels, and of its network."""
    return with_network(replace(conf.sizes, active=active), [conf.d_hidden] * conf.n_layers, 1 + conf.d_feature)


class SDFGrid(GridField):
    """Grid and network; a `DistanceField`."""

    conf: SdfGridConfig

    def __init__(self, conf: SdfGridConfig, rng: np.random.Generator) -> None:
        super().__init__(conf, rng, _sphere(rng, conf))

    def begin_with_sphere(self, radius: float, is_inverted: bool = False) -> None:
        """See `DistanceField`."""
        last, sign = self.layers()[-1], -1.0 if is_inverted else 1.0
        weight, bias = last.weight.numpy().copy(), last.bias.numpy().copy()
        weight[0], bias[0] = sign * np.abs(weight[0]), -sign * radius
        for parameter, values in ((last.weight, weight), (last.bias, bias)):
            parameter.update(jt.array(values))
            parameter.start_grad()

    def begin_with(self, draw: Draw, levels: int) -> None:
        """See `DistanceField`."""
        self.activate(levels, 0.0)
        sizes = self.sizes

        def distance(points: Var) -> Var:
            return grid_values(points, table=self.table, weights=self.weights(sizes), sizes=sizes)[:, :1]

        fit_distances(
            [self.table, *(one for layer in self.layers() for one in (layer.weight, layer.bias))], distance, draw
        )

    def bind(self) -> BoundDistance:
        """The field with its current parameters."""
        sizes = self.sizes
        weights = self.weights(sizes)
        given = {"table": self.table, "weights": weights, "sizes": sizes}
        values = partial(grid_values, **given)
        return BoundDistance(lambda points: values(points)[:, :1], partial(grid_sdf, **given), values)


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
        geometry = grid_sdf(points, self.table, self.weights(sizes), sizes)
        return density_of(geometry.sdf), geometry.feature, geometry.gradient


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
