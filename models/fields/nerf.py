"""The background: a NeRF (arXiv 2003.08934) on inverted-sphere points (NeRF++, arXiv 2010.07492)."""

from __future__ import annotations

import numpy as np

from models.backend import jt
from models.config import NerfConfig
from models.config_sizes import encoding_width, nerf_trunk_widths
from models.fields.encodings import positional_encoding
from models.fields.layers import Linear, uniform_init
from models.ops import mlp, native
from models.structs import Var


class NeRF(jt.nn.Module):
    """An MLP (point, view direction) -> (density, RGB), both before their activation (softplus, sigmoid)."""

    def __init__(self, conf: NerfConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf
        width, half = conf.W, conf.W // 2
        view_width = encoding_width(conf.d_in_view, conf.multires_view)

        def linear(inputs: int, outputs: int) -> Linear:
            return Linear(*uniform_init(rng, inputs, outputs), weight_norm=False)

        trunk = nerf_trunk_widths(conf)
        self.pts_linears = jt.nn.ModuleList([linear(*widths) for widths in trunk])
        self.views_linears = jt.nn.ModuleList([linear(view_width + width, half)])
        self.feature_linear = linear(width, width)
        self.alpha_linear = linear(width, 1)
        self.rgb_linear = linear(half, 3)
        widths = [*trunk, (width, width + 1), (view_width + width, half), (half, 3)]
        self._spec = mlp.nerf_spec(widths, conf.d_in, conf.multires, conf.multires_view)

    def execute(self, points: Var, view_dirs: Var) -> tuple[Var, Var]:
        """Raw density [P, 1] and raw RGB [P, 3], differentiable in the parameters.

        Args:
            points: [P, 4] inverted-sphere coordinates (x / r, 1 / r), or [P, 3].
            view_dirs: [P, 3], unit, from the camera outwards.
        """
        if native.is_available():
            return mlp.nerf(points, view_dirs, self._packed(), self._spec)
        return self.reference(points, view_dirs)

    def _packed(self) -> Var:
        """All parameters as the native operation reads them; the density is the last row of the feature's layer."""
        heads, after = [self.feature_linear, self.alpha_linear], [*self.views_linears, self.rgb_linear]
        joined = [*([layer] for layer in self.pts_linears), heads, *([layer] for layer in after)]
        return mlp.flatten([part for rows in joined for part in (*(x.weight for x in rows), *(x.bias for x in rows))])

    def reference(self, points: Var, view_dirs: Var) -> tuple[Var, Var]:
        """What `execute` computes, in plain Jittor: its specification, and its form on CUDA."""
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
