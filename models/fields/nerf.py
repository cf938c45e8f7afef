"""The background: a NeRF (arXiv 2003.08934) on inverted-sphere points (NeRF++, arXiv 2010.07492)."""

from __future__ import annotations

import numpy as np

from models.backend import jt
from models.config import NerfConfig
from models.fields.encodings import encoding_width, positional_encoding
from models.fields.layers import Linear, uniform_init
from models.structs import Var


class NeRF(jt.nn.Module):
    """An MLP (point, view direction) -> (density, RGB), both before their activation (softplus, sigmoid)."""

    def __init__(self, conf: NerfConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf
        width, half = conf.W, conf.W // 2
        point_width = encoding_width(conf.d_in, conf.multires)
        view_width = encoding_width(conf.d_in_view, conf.multires_view)

        def linear(inputs: int, outputs: int) -> Linear:
            return Linear(*uniform_init(rng, inputs, outputs), weight_norm=False)

        after = [width + point_width if index in conf.skips else width for index in range(conf.D - 1)]
        self.pts_linears = jt.nn.ModuleList([linear(inputs, width) for inputs in [point_width, *after]])
        self.views_linears = jt.nn.ModuleList([linear(view_width + width, half)])
        self.feature_linear = linear(width, width)
        self.alpha_linear = linear(width, 1)
        self.rgb_linear = linear(half, 3)

    def execute(self, points: Var, view_dirs: Var) -> tuple[Var, Var]:
        """Raw density [P, 1] and raw RGB [P, 3].

        Args:
            points: [P, 4] inverted-sphere coordinates (x / r, 1 / r), or [P, 3].
            view_dirs: [P, 3], unit, from the camera outwards.
        """
        encoded = positional_encoding(points, self.conf.multires)
        x = encoded
        for index, layer in enumerate(self.pts_linears):
            x = jt.maximum(layer(x), 0.0)
            if index in self.conf.skips:
                x = jt.concat([encoded, x], dim=1)
        density = self.alpha_linear(x)
        views = positional_encoding(view_dirs, self.conf.multires_view)
        x = jt.concat([self.feature_linear(x), views], dim=1)
        for layer in self.views_linears:
            x = jt.maximum(layer(x), 0.0)
        return density, self.rgb_linear(x)
