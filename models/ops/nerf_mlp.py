"""A NeRF: (point, view direction) -> raw density and raw RGB. Differentiable once, in the weights."""

from __future__ import annotations

from models.machine.backend import jt
from models.ops.kernel import Kernel
from models.ops.network import Weights, filled, network_source, positional_encoding, shapes32
from models.ops.sizes import NerfSizes
from models.structs import Var

SOURCE = network_source("nerf_mlp.h", NerfSizes)


def _reference(points: Var, view_dirs: Var, weights: Weights, sizes: NerfSizes) -> tuple[Var, Var]:
    """[P, coordinates], unit [P, 3] -> density [P, 1] and RGB [P, 3], both before their activation.

    The weights are those of the trunk, then feature and density (its last row), view, colour.
    """

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


def _native(points: Var, view_dirs: Var, weights: Weights, sizes: NerfSizes) -> tuple[Var, Var]:
    return _Nerf(points, view_dirs, weights.packed, sizes)(weights.packed)


class _Nerf(jt.Function):
    """Stores only its inputs."""

    def __init__(self, points: Var, view_dirs: Var, packed: Var, sizes: NerfSizes) -> None:
        super().__init__()
        self.inputs = [points, view_dirs, packed]
        self.sizes = sizes
        self.shapes = [(points.shape[0], 1), (points.shape[0], 3)]

    def execute(self, packed: Var) -> tuple[Var, Var]:
        """Density and RGB."""
        points, views, _ = self.inputs
        return tuple(SOURCE.call("nerf_forward", self.sizes, shapes32(*self.shapes), [points, views, packed]))

    def grad(self, d_density: Var | None, d_rgb: Var | None) -> Var:
        """The cotangent of `packed`."""
        cotangents = filled((d_density, d_rgb), self.shapes)
        shapes = shapes32(self.inputs[2].shape)
        return SOURCE.call("nerf_backward", self.sizes, shapes, [*self.inputs, *cotangents])[0]


nerf = Kernel(_reference, cpu=_native, cuda=_native)
