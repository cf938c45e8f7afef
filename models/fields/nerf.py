"""The background: a NeRF (arXiv 2003.08934) on inverted-sphere points (NeRF++, arXiv 2010.07492)."""

from __future__ import annotations

import numpy as np

from models.fields.conf import NerfConfig
from models.fields.layers import Linear, uniform_init
from models.machine.backend import jt
from models.ops.nerf_mlp import nerf
from models.ops.network import Weights
from models.ops.sizes import NerfSizes
from models.structs import Var


class NeRF(jt.nn.Module):
    """An MLP (point, view direction) -> (density, RGB), both before their activation (softplus, sigmoid)."""

    def __init__(self, conf: NerfConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf

        def linear(inputs: int, outputs: int) -> Linear:
            return Linear(*uniform_init(rng, inputs, outputs), weight_norm=False)

        *_, view, color = conf.heads
        self.pts_linears = jt.nn.ModuleList([linear(*widths) for widths in conf.trunk])
        self.views_linears = jt.nn.ModuleList([linear(*view)])
        self.feature_linear = linear(conf.W, conf.W)
        self.alpha_linear = linear(conf.W, 1)
        self.rgb_linear = linear(*color)
        self._sizes = NerfSizes(
            trunk=len(conf.trunk),
            coordinates=conf.d_in,
            octaves=conf.multires,
            view_octaves=conf.multires_view,
            skips=conf.skips,
            widths=tuple(entry for pair in [*conf.trunk, *conf.heads] for entry in pair),
        )

    def execute(self, points: Var, view_dirs: Var, selected: Var | None = None) -> tuple[Var, Var]:
        """Raw density [P, 1] and raw RGB [P, 3], differentiable in the parameters.

        Args:
            points: [P, 4] inverted-sphere coordinates (x / r, 1 / r), or [P, 3].
            view_dirs: [P, 3], unit, from the camera outwards.
            selected: bool [P], where the network is evaluated; both outputs are 0 elsewhere. None for everywhere.
        """
        heads = [self.feature_linear, self.alpha_linear]  # one layer; its last row is the density
        joined = (jt.concat([head.weight for head in heads]), jt.concat([head.bias for head in heads]))
        after = [*self.views_linears, self.rgb_linear]
        layers = [(layer.weight, layer.bias) for layer in self.pts_linears]
        weights = Weights([*layers, joined, *((layer.weight, layer.bias) for layer in after)])
        return nerf(points, view_dirs, weights, self._sizes, selected)
