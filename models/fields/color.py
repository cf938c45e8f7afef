"""The colour network c(x, v, n, feature) -> RGB."""

from __future__ import annotations

import numpy as np

from models.backend import jt
from models.config import ColorConfig
from models.config_sizes import color_layer_widths
from models.fields.encodings import positional_encoding
from models.fields.layers import Linear, uniform_init
from models.ops import mlp, native
from models.structs import Var

# What each mode reads besides the feature, in this order (IDR, arXiv 2003.09852, section 3.2 and its ablations).
MODE_INPUTS = {
    "idr": ("points", "view_dirs", "normals"),
    "no_view_dir": ("points", "normals"),
    "no_normal": ("points", "view_dirs"),
}


class RenderingNetwork(jt.nn.Module):
    """A ReLU MLP with weight norm and a sigmoid at its end (NeuS, arXiv 2106.10689, appendix E)."""

    def __init__(self, conf: ColorConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf
        widths = color_layer_widths(conf)
        self._spec = mlp.color_spec(widths, conf.d_feature, conf.squeeze_out, "normals" in MODE_INPUTS[conf.mode])
        for index, (inputs, outputs) in enumerate(widths):
            weight, bias = uniform_init(rng, inputs, outputs)
            setattr(self, f"lin{index}", Linear(weight, bias, conf.weight_norm))

    def layers(self) -> list[Linear]:
        """The linear layers from input to output."""
        return [getattr(self, f"lin{index}") for index in range(self.conf.n_layers + 1)]

    def execute(self, points: Var, normals: Var, view_dirs: Var, features: Var) -> Var:
        """RGB [P, 3] at points, in [0, 1] where `squeeze_out`; differentiable in all but points and directions.

        Args:
            points: [P, 3].
            normals: [P, 3], the raw gradient of the SDF (not normalised, as published).
            view_dirs: [P, 3], unit, from the camera outwards.
            features: [P, F].
        """
        if not native.is_available():
            return self.reference(points, normals, view_dirs, features)
        layers = self.layers()
        packed = mlp.pack([layer.matrix() for layer in layers], [layer.bias for layer in layers])
        fixed = self._concat(("points", "view_dirs"), points, normals, view_dirs)
        return mlp.color(fixed, normals, features, packed, self._spec)

    def reference(self, points: Var, normals: Var, view_dirs: Var, features: Var) -> Var:
        """What `execute` computes, in plain Jittor: its specification, and its form on CUDA."""
        x = jt.concat([self._concat(MODE_INPUTS["idr"], points, normals, view_dirs), features], dim=1)
        layers = self.layers()
        for layer in layers[:-1]:
            x = jt.maximum(layer(x), 0.0)
        x = layers[-1](x)
        return x.sigmoid() if self.conf.squeeze_out else x

    def _concat(self, names: tuple[str, ...], points: Var, normals: Var, view_dirs: Var) -> Var:
        """Those of the named inputs that the mode reads, side by side: [P, width]."""
        values = {
            "points": points,
            "view_dirs": positional_encoding(view_dirs, self.conf.multires_view),
            "normals": normals,
        }
        return jt.concat([values[name] for name in names if name in MODE_INPUTS[self.conf.mode]], dim=1)
