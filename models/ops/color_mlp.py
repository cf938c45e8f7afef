"""A colour network: ReLU layers and an optional sigmoid, applied to (constants, normal, feature) of each point; and its
constant inputs, the point and the encoded view direction. P points.

Differentiable once, with respect to normals, features and weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from models.machine.available import FLOAT_BYTES
from models.machine.backend import jt
from models.ops.network import Weights, network_source, positional_encoding, shapes32
from models.ops.sizes import BLOCK, ColorSizes, encoding_width
from models.ops.source import CPU, Kernel, device
from models.structs import Var


@dataclass(frozen=True)
class ViewEncoding:
    """The sizes and constants that reference and native source share."""

    octaves: int


INPUTS_SOURCE = network_source("color_inputs.h", ViewEncoding)


def _inputs_reference(points: Var, views: Var, octaves: int) -> Var:
    """Points and directions [P, 3] -> [P, 3 + 3 (1 + 2 octaves)]."""
    return jt.concat([points, positional_encoding(views, octaves)], dim=1)


def _inputs_native(points: Var, views: Var, octaves: int) -> Var:
    shapes = shapes32((points.shape[0], 3 + encoding_width(3, octaves)))
    return INPUTS_SOURCE.call("color_inputs", ViewEncoding(octaves), shapes, [points, views])[0].stop_grad()


color_inputs = Kernel(_inputs_reference, cpu=_inputs_native, cuda=_inputs_native)


# Largest size of the stored layers. For a narrow network it is faster to store the layers than to recompute them; for a
# wide one on many points, memory is the scarcer resource.
KEPT_BYTES = 2**24

SOURCE = network_source("color_mlp.h", ColorSizes)


def _reference(fixed: Var, normals: Var, features: Var, weights: Weights, sizes: ColorSizes) -> Var:
    """[P, fixed], [P, 3], [P, F] -> RGB [P, 3]; normals are used if `sizes.normals`."""
    x = jt.concat([fixed, normals, features] if sizes.normals else [fixed, features], dim=1)
    *hidden, (matrix, bias) = weights.layers
    for inner, offset in hidden:
        x = jt.maximum(jt.matmul(x, inner.transpose()) + offset, 0.0)
    x = jt.matmul(x, matrix.transpose()) + bias
    return x.sigmoid() if sizes.squeeze else x


def _native(fixed: Var, normals: Var, features: Var, weights: Weights, sizes: ColorSizes) -> Var:
    return _Color(fixed, normals, features, weights.packed, sizes)(normals, features, weights.packed)


def _cuda(fixed: Var, normals: Var, features: Var, weights: Weights, sizes: ColorSizes) -> Var:
    form = _native if sizes.fits_tiles else _reference
    return form(fixed, normals, features, weights, sizes)


class _Color(jt.Function):
    """Stores its inputs, its outputs and, if they are small enough, the outputs of the hidden layers."""

    def __init__(self, fixed: Var, normals: Var, features: Var, packed: Var, sizes: ColorSizes) -> None:
        super().__init__()
        self.inputs = [fixed, normals, features, packed]
        self.points = fixed.shape[0]
        self.record_size = -(-self.points // BLOCK) * BLOCK * sizes.recorded
        is_kept = device() == CPU and not jt.flags.no_grad and self.record_size * FLOAT_BYTES <= KEPT_BYTES
        self.sizes = replace(sizes, keeps=int(is_kept))
        self.outputs: list[Var] = []

    def execute(self, normals: Var, features: Var, packed: Var) -> Var:
        """RGB [P, 3]."""
        kept = self.record_size if self.sizes.keeps else 0
        shapes = shapes32((self.points, self.sizes.widths[-1]), (max(1, kept),))
        self.outputs = SOURCE.call("color_forward", self.sizes, shapes, [self.inputs[0], normals, features, packed])
        return self.outputs[0]

    def grad(self, d_rgb: Var) -> tuple[Var, ...]:
        """Cotangents of normals, features and packed."""
        shapes = shapes32(*(value.shape for value in self.inputs[1:]))
        return tuple(SOURCE.call("color_backward", self.sizes, shapes, [*self.inputs, *self.outputs, d_rgb]))


color = Kernel(_reference, cpu=_native, cuda=_cuda)
