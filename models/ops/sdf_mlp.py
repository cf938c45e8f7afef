"""A signed-distance network f(x) -> (sdf, feature) and its gradient with respect to x, in one pass.

The gradient is a backward sweep that shares the forward pass with the value. It costs one pass instead of two, and a
loss of it is differentiated once instead of twice. Points are constants. Differentiable once with respect to the
weights: the second derivative of the eikonal loss is included, since the gradient is an output.
"""

from __future__ import annotations

from dataclasses import replace

from models.machine.backend import jt
from models.ops.elementwise import softplus
from models.ops.network import Weights, filled, network_source, positional_encoding, positional_encoding_vjp, shapes32
from models.ops.sizes import BLOCK, SKIP_SCALE, SOFTPLUS_BETA, SdfSizes
from models.ops.source import Kernel
from models.structs import FieldOutput, Var

SOURCE = network_source("sdf_mlp.h", SdfSizes, BETA=SOFTPLUS_BETA, SKIP_SCALE=SKIP_SCALE)


def _distance_reference(points: Var, weights: Weights, sizes: SdfSizes) -> Var:
    """Signed distances [P, 3] -> [P, 1]."""
    return _forward(points, weights, sizes)[-1][:, :1] / sizes.scale


def _field_reference(points: Var, weights: Weights, sizes: SdfSizes) -> FieldOutput:
    """Signed distance [P, 1], feature [P, F] and gradient [P, 3]."""
    pre_activations = _forward(points, weights, sizes)
    last = pre_activations[-1]
    gradient = _gradient(points, pre_activations[:-1], weights, sizes)
    return FieldOutput(last[:, :1] / sizes.scale, last[:, 1:], gradient)


def _forward(points: Var, weights: Weights, sizes: SdfSizes) -> list[Var]:
    """Pre-activations of all layers; the last are the outputs, (scaled sdf, feature)."""
    encoded = positional_encoding(points * sizes.scale, sizes.octaves)
    x, pre_activations = encoded, []
    for index, (matrix, bias) in enumerate(weights.layers):
        if sizes.skips_into(index):
            x = jt.concat([x, encoded], dim=1) * SKIP_SCALE
        pre_activations.append(jt.matmul(x, matrix.transpose()) + bias)
        x = softplus(pre_activations[-1], SOFTPLUS_BETA)
    return pre_activations


def _gradient(points: Var, pre_activations: list[Var], weights: Weights, sizes: SdfSizes) -> Var:
    """d sdf / d point [P, 3]: the transposed Jacobians of the layers, last to first, applied to the sdf's row.

    The two factors `scale`, of the input and of the output, cancel.
    """
    matrices = [matrix for matrix, _ in weights.layers]
    row = matrices[-1][:1]
    cotangent = row.broadcast((points.shape[0], row.shape[1]))
    into_skips = []
    for index in range(len(matrices) - 1, -1, -1):
        if index < len(matrices) - 1:
            slope = (pre_activations[index] * SOFTPLUS_BETA).sigmoid()
            cotangent = jt.matmul(cotangent * slope, matrices[index])
        if sizes.skips_into(index):
            cotangent = cotangent * SKIP_SCALE
            into_skips.append(cotangent[:, -sizes.encoded :])
            cotangent = cotangent[:, : -sizes.encoded]
    for skipped in into_skips:
        cotangent = cotangent + skipped
    return positional_encoding_vjp(points * sizes.scale, cotangent, sizes.octaves)


def _distance_native(points: Var, weights: Weights, sizes: SdfSizes) -> Var:
    return SOURCE.call("sdf_distance", sizes, shapes32((points.shape[0], 1)), [points, weights.packed])[0]


def _field_native(points: Var, weights: Weights, sizes: SdfSizes) -> FieldOutput:
    return FieldOutput(*_Field(points, weights.packed, sizes)(weights.packed))


class _Field(jt.Function):
    """Stores the activations, one float per hidden channel and point, for its gradient."""

    def __init__(self, points: Var, packed: Var, sizes: SdfSizes) -> None:
        super().__init__()
        self.points, self.packed, self.sizes = points, packed, sizes
        count = points.shape[0]
        self.shapes = [(count, 1), (count, sizes.features), (count, 3)]
        self.record: Var | None = None

    def execute(self, packed: Var) -> tuple[Var, Var, Var]:
        """Distance, feature, gradient."""
        keeps = not jt.flags.no_grad
        blocks = -(-self.points.shape[0] // BLOCK)
        shapes = shapes32(*self.shapes, (max(1, blocks * BLOCK * self.sizes.recorded if keeps else 0),))
        sizes = replace(self.sizes, keeps=int(keeps))
        *outputs, self.record = SOURCE.call("sdf_forward", sizes, shapes, [self.points, packed])
        return tuple(outputs)

    def grad(self, d_sdf: Var | None, d_feature: Var | None, d_gradient: Var | None) -> Var:
        """The cotangent of `packed`."""
        cotangents = filled((d_sdf, d_feature, d_gradient), self.shapes)
        inputs = [self.points, self.packed, self.record, *cotangents]
        return SOURCE.call("sdf_backward", self.sizes, shapes32(self.packed.shape), inputs)[0]


sdf_distance = Kernel(_distance_reference, cpu=_distance_native, cuda=_distance_native)
sdf_field = Kernel(_field_reference, cpu=_field_native, cuda=_field_native)
