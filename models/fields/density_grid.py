"""A density on a multiresolution hash grid with a small network (Instant-NGP, arXiv 2201.05989)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from models.fields.conf import DensityGridConfig
from models.fields.grid_field import GridField
from models.fields.layers import uniform_init
from models.ops.elementwise import hard_clip
from models.ops.grid_sdf import grid_sdf, grid_values
from models.structs import Var

# Clamp of the network's output: e^15 is opaque within a millionth of the sphere's radius, and its gradient is finite.
LARGEST_LOG = 15.0


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
