"""The published signed-distance network (IDR, arXiv 2003.09852; NeuS, arXiv 2106.10689, section 4.1)."""

from __future__ import annotations

from functools import partial

import numpy as np

from models.fields.conf import SdfConfig
from models.fields.layers import Layered, geometric_init, uniform_init
from models.fields.protocol import DistanceAtWeights
from models.ops.network import Weights
from models.ops.sdf_mlp import sdf_field
from models.ops.sizes import SdfSizes
from models.ops.upsample import NetworkDistance
from models.structs import FieldOutput, Var


class SDFNetwork(Layered):
    """An MLP with Softplus, skips and weight norm; a `DistanceField`."""

    def __init__(self, conf: SdfConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf
        widths = conf.widths
        if conf.geometric_init:
            arrays = geometric_init(rng, widths, conf.embedded_width, conf)
        else:
            arrays = [uniform_init(rng, inputs, outputs) for inputs, outputs in widths]
        self.add_layers(arrays, conf.weight_norm)

    def at_weights(self) -> DistanceAtWeights:
        """The network with its current parameters."""
        conf = self.conf
        sizes = SdfSizes(
            layers=conf.n_layers + 1,
            encoded=conf.embedded_width,
            octaves=conf.multires,
            skips=sum(1 << layer for layer in conf.skip_in),
            widths=tuple(width for pair in conf.widths for width in pair),
            scale=conf.scale,
        )
        weights = Weights([layer.parts() for layer in self.layers()])
        return DistanceAtWeights(NetworkDistance(weights, sizes), partial(sdf_field, weights=weights, sizes=sizes))

    def execute(self, points: Var) -> FieldOutput:
        """Signed distance, feature and gradient at points [P, 3], differentiable in the parameters."""
        return self.at_weights().evaluate(points)
