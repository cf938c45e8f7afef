"""The colour network c(x, v, n, feature) -> RGB."""

from __future__ import annotations

import numpy as np

from models.backend import jt
from models.config import ColorConfig
from models.fields.encodings import encoding_width, positional_encoding
from models.fields.layers import Linear, uniform_init
from models.structs import Var

# What each mode reads besides the feature, in this order (IDR, arXiv 2003.09852, section 3.2 and its ablations).
MODE_INPUTS = {
    "idr": ("points", "view_dirs", "normals"),
    "no_view_dir": ("points", "normals"),
    "no_normal": ("points", "view_dirs"),
}
VIEW_WIDTH = 3


def color_layer_widths(conf: ColorConfig) -> list[tuple[int, int]]:
    """(inputs, outputs) of each layer; the view direction's encoding widens the first one, where the mode reads it."""
    first = conf.d_in + conf.d_feature
    if "view_dirs" in MODE_INPUTS[conf.mode]:
        first += encoding_width(VIEW_WIDTH, conf.multires_view) - VIEW_WIDTH
    sizes = [first] + [conf.d_hidden] * conf.n_layers + [conf.d_out]
    return list(zip(sizes[:-1], sizes[1:], strict=True))


class RenderingNetwork(jt.nn.Module):
    """A ReLU MLP with weight norm and a sigmoid at its end (NeuS, arXiv 2106.10689, appendix E)."""

    def __init__(self, conf: ColorConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf
        for index, (inputs, outputs) in enumerate(color_layer_widths(conf)):
            weight, bias = uniform_init(rng, inputs, outputs)
            setattr(self, f"lin{index}", Linear(weight, bias, conf.weight_norm))

    def layers(self) -> list[Linear]:
        """The linear layers from input to output."""
        return [getattr(self, f"lin{index}") for index in range(self.conf.n_layers + 1)]

    def inputs(self, points: Var, normals: Var, view_dirs: Var, features: Var) -> Var:
        """What the first layer reads: [P, 3] three times and [P, F] -> [P, first width]."""
        named = {
            "points": points,
            "view_dirs": positional_encoding(view_dirs, self.conf.multires_view),
            "normals": normals,
        }
        return jt.concat([*(named[name] for name in MODE_INPUTS[self.conf.mode]), features], dim=1)

    def execute(self, points: Var, normals: Var, view_dirs: Var, features: Var) -> Var:
        """RGB [P, 3] at points, in [0, 1] where `squeeze_out`.

        Args:
            points: [P, 3].
            normals: [P, 3], the raw gradient of the SDF (not normalised, as published).
            view_dirs: [P, 3], unit, from the camera outwards.
            features: [P, F].
        """
        x = self.inputs(points, normals, view_dirs, features)
        layers = self.layers()
        for layer in layers[:-1]:
            x = jt.maximum(layer(x), 0.0)
        x = layers[-1](x)
        return x.sigmoid() if self.conf.squeeze_out else x
