"""The signed-distance network f(x) -> (sdf, feature) and its gradient with respect to x.

The gradient is written out as one backward sweep of ordinary operations, sharing the forward pass with the value: it
costs one pass more instead of two, and the loss is differentiated once instead of twice.
"""

from __future__ import annotations

import math

import numpy as np

from models.backend import jt
from models.config import SdfConfig
from models.config_sizes import encoding_width, sdf_layer_widths
from models.fields.encodings import positional_encoding, positional_encoding_vjp
from models.fields.layers import Linear, geometric_init, uniform_init
from models.ops import mlp, native
from models.ops.elementwise import softplus
from models.structs import FieldOutput, Var

SOFTPLUS_BETA = 100.0  # sharpness of the activation: nearly a ReLU, yet twice differentiable (IDR)
# Keeps the variance of a layer's input where the encoded point is appended to it.
SKIP_SCALE = 1.0 / math.sqrt(2.0)


class SDFNetwork(jt.nn.Module):
    """An MLP with Softplus, skips and weight norm (IDR, arXiv 2003.09852; NeuS, arXiv 2106.10689, section 4.1)."""

    def __init__(self, conf: SdfConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf
        widths = sdf_layer_widths(conf)
        if conf.geometric_init:
            arrays = geometric_init(rng, widths, encoding_width(conf.d_in, conf.multires), conf)
        else:
            arrays = [uniform_init(rng, inputs, outputs) for inputs, outputs in widths]
        self._spec = mlp.sdf_spec(widths, conf.embedded_width, conf.multires, conf.skip_in)
        for index, (weight, bias) in enumerate(arrays):
            setattr(self, f"lin{index}", Linear(weight, bias, conf.weight_norm))

    def layers(self) -> list[Linear]:
        """The linear layers from input to output."""
        return [getattr(self, f"lin{index}") for index in range(self.conf.n_layers + 1)]

    def sdf(self, points: Var) -> Var:
        """Signed distances only, [P, 3] -> [P, 1]; not for differentiation."""
        if native.is_available():
            return mlp.sdf_distance(points, self._packed(), self._spec, self.conf.scale)
        return self._forward(points)[-1][:, :1] / self.conf.scale

    def execute(self, points: Var) -> FieldOutput:
        """Signed distance, feature and gradient at points [P, 3], differentiable in the parameters."""
        if native.is_available():
            return mlp.sdf_field(points, self._packed(), self._spec, self.conf.scale)
        return self.reference(points)

    def _packed(self) -> Var:
        """All parameters as the native operations read them."""
        layers = self.layers()
        return mlp.pack([layer.matrix() for layer in layers], [layer.bias for layer in layers])

    def reference(self, points: Var) -> FieldOutput:
        """What `execute` computes, in plain Jittor: its specification, and its form on CUDA."""
        pre_activations = self._forward(points)
        last = pre_activations[-1]
        return FieldOutput(
            sdf=last[:, :1] / self.conf.scale,
            feature=last[:, 1:],
            gradient=self._gradient(points, pre_activations[:-1]),
        )

    def _forward(self, points: Var) -> list[Var]:
        """Pre-activations of all layers; the last are the outputs, (scaled sdf, feature)."""
        encoded = positional_encoding(points * self.conf.scale, self.conf.multires)
        x, pre_activations = encoded, []
        for index, layer in enumerate(self.layers()):
            if index in self.conf.skip_in:
                x = jt.concat([x, encoded], dim=1) * SKIP_SCALE
            pre_activations.append(layer(x))
            x = softplus(pre_activations[-1], SOFTPLUS_BETA)
        return pre_activations

    def _gradient(self, points: Var, pre_activations: list[Var]) -> Var:
        """d sdf / d point [P, 3]: the transposed Jacobians of the layers, last to first, applied to the sdf's row.

        The two factors `scale`, of the input and of the output, cancel.
        """
        layers, encoded = self.layers(), encoding_width(self.conf.d_in, self.conf.multires)
        row = layers[-1].matrix()[:1]
        cotangent = row.broadcast((points.shape[0], row.shape[1]))
        into_skips = []
        for index in range(len(layers) - 1, -1, -1):
            if index < len(layers) - 1:
                slope = (pre_activations[index] * SOFTPLUS_BETA).sigmoid()
                cotangent = jt.matmul(cotangent * slope, layers[index].matrix())
            if index in self.conf.skip_in:
                cotangent = cotangent * SKIP_SCALE
                into_skips.append(cotangent[:, -encoded:])
                cotangent = cotangent[:, :-encoded]
        for skipped in into_skips:
            cotangent = cotangent + skipped
        return positional_encoding_vjp(points * self.conf.scale, cotangent, self.conf.multires)
