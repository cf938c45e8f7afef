"""A hash grid with a small softplus network: f(x) -> (sdf, feature) and the gradient with respect to x, in one pass.

The inputs of the network are the point and the features of the active levels. Interpolation, network and gradient are
computed block by block in the cache; in the backward pass the cotangent of the gradient reaches the table through the
features and through their derivatives. Points are constants. Differentiable once with respect to table and weights: the
second derivative of the eikonal loss is included, since the gradient is an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.machine.backend import jt
from models.ops.elementwise import softplus
from models.ops.grid import level_features, level_slopes
from models.ops.network import Weights, filled, network_source, shapes32
from models.ops.sizes import BLOCK, FEATURES, POINT, SOFTPLUS_BETA, GridSizes
from models.ops.source import Kernel
from models.structs import FieldOutput, Var

SOURCE = network_source("grid_sdf.h", GridSizes, FEATURES=FEATURES, BETA=SOFTPLUS_BETA)


def active_weights(layers: Sequence[tuple[Var, Var]], sizes: GridSizes) -> Weights:
    """The layers without the columns of inactive levels."""
    (matrix, bias), *rest = layers
    return Weights([(matrix if matrix.shape[1] == sizes.inputs else matrix[:, : sizes.inputs], bias), *rest])


def with_network(sizes: GridSizes, hidden: Sequence[int], outputs: int) -> GridSizes:
    """The layout of a grid with hidden layers of these widths and `outputs` channels.

    Raises ValueError without a hidden layer, which the native forms require.
    """
    if not hidden:
        raise ValueError("a grid needs a network of at least one hidden layer behind it")
    ends = [sizes.inputs, *hidden, outputs]
    return replace(sizes, widths=tuple(width for pair in zip(ends[:-1], ends[1:], strict=True) for width in pair))


def _values_reference(points: Var, table: Var, weights: Weights, sizes: GridSizes) -> Var:
    """All outputs of the network, [P, O]: the distance or density first."""
    return _forward(points, table, weights, sizes)[-1]


def _field_reference(points: Var, table: Var, weights: Weights, sizes: GridSizes) -> FieldOutput:
    """Signed distance [P, 1], feature [P, F] and gradient [P, 3]; points [P, 3], table [rows, FEATURES]."""
    *hidden, outputs = _forward(points, table, weights, sizes)
    return FieldOutput(outputs[:, :1], outputs[:, 1:], _gradient(points, table, hidden, weights, sizes))


def _forward(points: Var, table: Var, weights: Weights, sizes: GridSizes) -> list[Var]:
    """Pre-activations of all layers; the last are the outputs."""
    features = [level_features(points, table, sizes, level) for level in range(sizes.active)]
    x, pre_activations = jt.concat([points, *features], dim=1), []
    for matrix, bias in weights.layers:
        pre_activations.append(jt.matmul(x, matrix.transpose()) + bias)
        x = softplus(pre_activations[-1], SOFTPLUS_BETA)
    return pre_activations


def _gradient(points: Var, table: Var, pre_activations: list[Var], weights: Weights, sizes: GridSizes) -> Var:
    """d sdf / d point [P, 3]: the gradient with respect to the network's inputs, multiplied by the derivatives of
    the features.
    """
    matrices = [matrix for matrix, _ in weights.layers]
    row = matrices[-1][:1]
    slope = row.broadcast((points.shape[0], row.shape[1]))
    for values, matrix in zip(reversed(pre_activations), reversed(matrices[:-1]), strict=True):
        slope = jt.matmul(slope * (values * SOFTPLUS_BETA).sigmoid(), matrix)
    total = slope[:, :POINT]
    for level in range(sizes.active):
        start = POINT + level * FEATURES
        pull = slope[:, start : start + FEATURES]
        along = [(pull * slopes).sum(dim=1, keepdims=True) for slopes in level_slopes(points, table, sizes, level)]
        total = total + jt.concat(along, dim=1)
    return total


def _values_native(points: Var, table: Var, weights: Weights, sizes: GridSizes) -> Var:
    shapes = [(points.shape[0], sizes.widths[-1])]
    return _Recorded(("grid_values", "grid_values_backward"), shapes, points, sizes)(table, weights.packed)


def _field_native(points: Var, table: Var, weights: Weights, sizes: GridSizes) -> FieldOutput:
    shapes = [(points.shape[0], width) for width in (1, sizes.widths[-1] - 1, 3)]
    return FieldOutput(*_Recorded(("grid_forward", "grid_backward"), shapes, points, sizes)(table, weights.packed))


class _Recorded(jt.Function):
    """Stores its inputs and what GridSizes.recorded counts, for its gradient."""

    def __init__(
        self, names: tuple[str, str], shapes: Sequence[tuple[int, ...]], points: Var, sizes: GridSizes
    ) -> None:
        super().__init__()
        self.names, self.shapes, self.points, self.sizes = names, shapes, points, sizes
        self.rows = -(-points.shape[0] // BLOCK) * BLOCK

    def execute(self, table: Var, packed: Var) -> tuple[Var, ...] | Var:
        keeps = not jt.flags.no_grad
        shapes = shapes32(*self.shapes, (max(1, self.rows * self.sizes.recorded if keeps else 0),))
        self.inputs = [self.points, table, packed]
        *outputs, self.record = SOURCE.call(self.names[0], replace(self.sizes, keeps=int(keeps)), shapes, self.inputs)
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    def grad(self, *cotangents: Var | None) -> tuple[Var, Var]:
        """Cotangents of table and packed weights."""
        inputs = [*self.inputs, self.record, *filled(cotangents, self.shapes)]
        left = self.rows * (POINT * (1 + FEATURES) + self.sizes.active * FEATURES)
        shapes = shapes32(*(value.shape for value in self.inputs[1:]), (left,))
        return tuple(SOURCE.call(self.names[1], self.sizes, shapes, inputs)[:2])


grid_values = Kernel(_values_reference, cpu=_values_native, cuda=_values_native)
grid_sdf = Kernel(_field_reference, cpu=_field_native, cuda=_field_native)
