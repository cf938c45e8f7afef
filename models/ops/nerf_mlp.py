"""A NeRF: (point, view direction) -> raw density and raw RGB. Differentiable once, in the weights.

`selected`, bool [P] or None for all: the points at which the network is evaluated; the others may have any value, even
NaN, and the outputs there are 0. Native forms evaluate no other points; the host does not know their number.
"""

from __future__ import annotations

from models.machine.backend import jt
from models.ops.network import Weights, filled, network_source, positional_encoding, shapes32
from models.ops.sizes import NerfSizes
from models.ops.source import Kernel
from models.structs import Var

SOURCE = network_source("nerf_mlp.h", NerfSizes)


def _reference(
    points: Var, view_dirs: Var, weights: Weights, sizes: NerfSizes, selected: Var | None = None
) -> tuple[Var, Var]:
    """[P, coordinates], unit [P, 3] -> density [P, 1] and RGB [P, 3], both before their activation.

    The weights are those of the trunk, then feature and density (its last row), view, colour.
    """
    if selected is not None:
        points, view_dirs = _where(selected, points), _where(selected, view_dirs)
        values = _reference(points, view_dirs, weights, sizes)
        return _where(selected, values[0]), _where(selected, values[1])

    def linear(layer: int, value: Var) -> Var:
        matrix, bias = weights.layers[layer]
        return jt.matmul(value, matrix.transpose()) + bias

    encoded = positional_encoding(points, sizes.octaves)
    x = encoded
    for index in range(sizes.trunk):
        x = jt.maximum(linear(index, x), 0.0)
        if index in sizes.skips:
            x = jt.concat([encoded, x], dim=1)
    heads = linear(sizes.trunk, x)
    views = positional_encoding(view_dirs, sizes.view_octaves)
    x = jt.maximum(linear(sizes.trunk + 1, jt.concat([heads[:, :-1], views], dim=1)), 0.0)
    return heads[:, -1:], linear(sizes.trunk + 2, x)


def _where(selected: Var, values: Var) -> Var:
    """The values [P, C] of the selected points, 0 for others."""
    return jt.ternary(selected.unsqueeze(1).broadcast(values.shape), values, jt.zeros_like(values))


def _native(
    points: Var, view_dirs: Var, weights: Weights, sizes: NerfSizes, selected: Var | None = None
) -> tuple[Var, Var]:
    return _Nerf(points, view_dirs, weights.packed, sizes, selected)(weights.packed)


def _cuda(
    points: Var, view_dirs: Var, weights: Weights, sizes: NerfSizes, selected: Var | None = None
) -> tuple[Var, Var]:
    form = _native if sizes.fits_tiles else _reference
    return form(points, view_dirs, weights, sizes, selected)


class _Nerf(jt.Function):
    """Stores only its inputs."""

    def __init__(self, points: Var, view_dirs: Var, packed: Var, sizes: NerfSizes, selected: Var | None) -> None:
        super().__init__()
        self.inputs = [points, view_dirs, packed, *([] if selected is None else [selected])]
        self.suffix = "" if selected is None else "_selected"
        self.sizes = sizes
        self.shapes = [(points.shape[0], 1), (points.shape[0], 3)]

    def execute(self, packed: Var) -> tuple[Var, Var]:
        """Density and RGB."""
        points, views, _, *selected = self.inputs
        inputs = [points, views, packed, *selected]
        return tuple(SOURCE.call(f"nerf_forward{self.suffix}", self.sizes, shapes32(*self.shapes), inputs))

    def grad(self, d_density: Var | None, d_rgb: Var | None) -> Var:
        """The cotangent of `packed`."""
        cotangents = filled((d_density, d_rgb), self.shapes)
        shapes = shapes32(self.inputs[2].shape)
        return SOURCE.call(f"nerf_backward{self.suffix}", self.sizes, shapes, [*self.inputs, *cotangents])[0]


nerf = Kernel(_reference, cpu=_native, cuda=_cuda)
