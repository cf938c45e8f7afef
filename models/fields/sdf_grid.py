"""A signed distance on a multiresolution grid of features with a small network behind it.

Instant-NGP (arXiv 2201.05989) with the point beside its features and a softplus network, whose gradient is exact; the
levels are switched on one after the other by whoever trains it (Neuralangelo, arXiv 2306.03092, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from models.fields.conf import SdfGridConfig
from models.fields.layers import Linear
from models.machine.backend import jt
from models.ops.grid_sdf import active_weights, grid_sdf, grid_values, with_network
from models.ops.grid_sizes import FEATURES, POINT, GridSizes
from models.structs import FieldOutput, Var

FIRST_FEATURES = 1e-4  # features start uniform between plus and minus this (Instant-NGP, section 4)
FEATURE_SPREAD = 0.1  # standard deviation of the last layer's weights for the feature: wide enough to be told apart


@dataclass(frozen=True)
class _AtWeights:
    """A `DistanceAtWeights`."""

    distance: Callable[[Var], Var]
    evaluate: Callable[[Var], FieldOutput]


class SDFGrid(jt.nn.Module):
    """Grid and network; a `DistanceField`. `active` says how many of its levels are read."""

    def __init__(self, conf: SdfGridConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf
        self.active = conf.levels
        sizes = conf.sizes
        values = rng.uniform(-FIRST_FEATURES, FIRST_FEATURES, (sizes.rows, FEATURES))
        self.table = jt.array(values.astype(np.float32))
        for index, (weight, bias) in enumerate(_sphere(rng, conf)):
            setattr(self, f"lin{index}", Linear(weight, bias, weight_norm=False))

    def layers(self) -> list[Linear]:
        """The linear layers from input to output."""
        return [getattr(self, f"lin{index}") for index in range(self.conf.n_layers + 1)]

    @property
    def sizes(self) -> GridSizes:
        """The layout of the levels that are read now, with the network."""
        conf = self.conf
        return with_network(replace(conf.sizes, active=self.active), [conf.d_hidden] * conf.n_layers, 1 + conf.d_feature)

    def at_weights(self) -> _AtWeights:
        """The field as it is now."""
        sizes = self.sizes
        weights = active_weights([(layer.matrix(), layer.bias) for layer in self.layers()], sizes)
        evaluate = partial(grid_sdf, table=self.table, weights=weights, sizes=sizes)
        values = partial(grid_values, table=self.table, weights=weights, sizes=sizes)
        return _AtWeights(lambda points: values(points)[:, :1], evaluate)


def _sphere(rng: np.random.Generator, conf: SdfGridConfig) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weight [out, in] and bias [out] of each layer: about the distance from a sphere of radius `conf.bias`.

    SAL, arXiv 1911.10414, section 5, on the point alone: the features start with weight zero.
    """
    widths = [POINT + FEATURES * conf.levels, *[conf.d_hidden] * conf.n_layers]
    arrays = []
    for index, (inputs, outputs) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
        weight = rng.normal(0.0, math.sqrt(2.0 / outputs), (outputs, inputs))
        if index == 0:
            weight[:, POINT:] = 0.0
        arrays.append((weight, np.zeros(outputs)))
    weight = rng.normal(0.0, FEATURE_SPREAD, (1 + conf.d_feature, widths[-1]))
    weight[0] = rng.normal(math.sqrt(math.pi / widths[-1]), 1e-4, widths[-1])
    bias = np.zeros(1 + conf.d_feature)
    bias[0] = -conf.bias
    return [*arrays, (weight, bias)]
