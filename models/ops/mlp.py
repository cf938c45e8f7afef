"""The networks as native CPU operations: blocks of points stay in the cache through all layers.

The references are `SDFNetwork.reference`, `RenderingNetwork.reference` and `NeRF.reference`, in plain Jittor; tests
hold both to each other and to float64. Differentiable once, in the weights (and, for the colours of surfaces, in
normals and features): the second derivative that the eikonal loss needs is inside, since the input gradient is an
output. Points and directions are constants.
The text of the kernels is in csrc/; they are compiled at their first use.
"""

from __future__ import annotations

import numpy as np

from models.backend import jt
from models.ops import native
from models.structs import FieldOutput, Var

BLOCK = 64  # points per block, as in csrc: the record kept for the backward pass is a whole number of blocks


def pack(matrices: list[Var], biases: list[Var]) -> Var:
    """All parameters as one vector, layer by layer: the weight [out, in], then the bias [out]."""
    return flatten([part for pair in zip(matrices, biases, strict=True) for part in pair])


def flatten(parts: list[Var]) -> Var:
    """Arrays of any shapes as one vector."""
    return jt.concat([part.reshape((-1,)) for part in parts], dim=0)


def sdf_spec(widths: list[tuple[int, int]], encoded: int, octaves: int, skips: tuple[int, ...]) -> np.ndarray:
    """The shape of an SDF network as csrc/sdf_mlp.h reads it.

    Args:
        widths: (inputs, outputs) of each layer.
        encoded: channels of the encoded point.
        octaves: of the encoding.
        skips: layers whose input ends with the encoded point.
    """
    return np.array([len(widths), encoded, octaves, sum(1 << layer for layer in skips), *np.ravel(widths)], np.int32)


def color_spec(widths: list[tuple[int, int]], features: int, squeezes: bool, has_normals: bool) -> np.ndarray:
    """The shape of a colour network as csrc/color_mlp.h reads it.

    Args:
        widths: (inputs, outputs) of each layer.
        features: channels of the feature, which the first input ends with.
        squeezes: whether a sigmoid ends the network.
        has_normals: whether the normal stands before the feature.
    """
    fixed = widths[0][0] - features - 3 * has_normals
    return np.array([len(widths), int(squeezes), fixed, int(has_normals), features, *np.ravel(widths)], np.int32)


def nerf_spec(widths: list[tuple[int, int]], coordinates: int, octaves: int, view_octaves: int) -> np.ndarray:
    """The shape of a NeRF as csrc/nerf_mlp.h reads it.

    Args:
        widths: (inputs, outputs) of the trunk's layers and of the three after it: feature and density, view, colour.
        coordinates: of a point.
        octaves, view_octaves: of the encodings.
    """
    return np.array([len(widths) - 3, coordinates, octaves, view_octaves, *np.ravel(widths)], np.int32)


def sdf_distance(points: Var, packed: Var, spec: np.ndarray, scale: float) -> Var:
    """Signed distances [P, 3] -> [P, 1]; not differentiable."""
    source = 'neus::sdf_distance(in2_p, in0_p, in0->shape[0], in1_p, data["scale"], out0_p);'
    return _run("sdf", source, [(points.shape[0], 1)], [points, packed, jt.array(spec)], scale)[0]


def sdf_field(points: Var, packed: Var, spec: np.ndarray, scale: float) -> FieldOutput:
    """Signed distance [P, 1], feature [P, F] and gradient [P, 3]; differentiable once in `packed`."""
    return FieldOutput(*_SdfField(points, packed, spec, scale)(packed))


def color(fixed: Var, normals: Var, features: Var, packed: Var, spec: np.ndarray) -> Var:
    """RGB [P, 3]; differentiable once in normals [P, 3], features [P, F] and `packed`, not in `fixed`."""
    return _Color(fixed, normals, features, packed, spec)(normals, features, packed)


def nerf(points: Var, view_dirs: Var, packed: Var, spec: np.ndarray) -> tuple[Var, Var]:
    """Raw density [P, 1] and raw RGB [P, 3]; differentiable once in `packed`."""
    return _Nerf(points, view_dirs, packed, spec)(packed)


class _SdfField(jt.Function):
    """`sdf_field`; keeps the activations, one float per hidden channel and point, for its gradient."""

    def __init__(self, points: Var, packed: Var, spec: np.ndarray, scale: float) -> None:
        super().__init__()
        self.points, self.packed, self.spec, self.scale = points, packed, jt.array(spec), scale
        self.features = int(spec[-1]) - 1
        self.saved_width = int(sum(spec[5:-2:2]))
        self.saved: Var | None = None

    def execute(self, packed: Var) -> tuple[Var, Var, Var]:
        """The three outputs."""
        count = self.points.shape[0]
        keeps = not jt.flags.no_grad
        blocks = -(-count // BLOCK) if keeps else 0
        source = (
            'neus::sdf_forward(in2_p, in0_p, in0->shape[0], in1_p, data["scale"], out0_p, out1_p, out2_p, '
            "out3->shape[0] > 1 ? out3_p : nullptr);"
        )
        shapes = [(count, 1), (count, self.features), (count, 3), (max(1, blocks * BLOCK * self.saved_width),)]
        *outputs, self.saved = _run("sdf", source, shapes, [self.points, packed, self.spec], self.scale)
        return tuple(outputs)

    def grad(self, d_sdf: Var | None, d_feature: Var | None, d_gradient: Var | None) -> Var:
        """The cotangent of `packed`."""
        count = self.points.shape[0]
        shapes = ((count, 1), (count, self.features), (count, 3))
        cotangents = _filled((d_sdf, d_feature, d_gradient), shapes)
        source = (
            'neus::sdf_backward(in2_p, in0_p, in0->shape[0], in1_p, data["scale"], in3_p, in4_p, in5_p, in6_p, out0_p);'
        )
        inputs = [self.points, self.packed, self.spec, self.saved, *cotangents]
        return _run("sdf", source, [tuple(self.packed.shape)], inputs, self.scale)[0]


class _Color(jt.Function):
    """`color`; keeps its inputs only."""

    def __init__(self, fixed: Var, normals: Var, features: Var, packed: Var, spec: np.ndarray) -> None:
        super().__init__()
        self.inputs = [fixed, normals, features, packed, jt.array(spec)]
        self.outputs = int(spec[-1])

    def execute(self, normals: Var, features: Var, packed: Var) -> Var:
        """RGB."""
        source = "neus::color_forward(in4_p, {in0_p, in1_p, in2_p}, in0->shape[0], in3_p, out0_p);"
        fixed, *_, spec = self.inputs
        inputs = [fixed, normals, features, packed, spec]
        return _run("color", source, [(fixed.shape[0], self.outputs)], inputs)[0]

    def grad(self, d_rgb: Var) -> tuple[Var, Var, Var]:
        """Cotangents of normals, features and packed."""
        source = (
            "neus::color_backward(in4_p, {in0_p, in1_p, in2_p}, in0->shape[0], in3_p, in5_p, out0_p, out1_p, out2_p);"
        )
        _, normals, features, packed, _ = self.inputs
        shapes = [tuple(value.shape) for value in (packed, normals, features)]
        d_packed, d_normals, d_features = _run("color", source, shapes, [*self.inputs, d_rgb])
        return d_normals, d_features, d_packed


class _Nerf(jt.Function):
    """`nerf`; keeps its inputs only."""

    def __init__(self, points: Var, view_dirs: Var, packed: Var, spec: np.ndarray) -> None:
        super().__init__()
        self.inputs = [points, view_dirs, packed, jt.array(spec)]

    def execute(self, packed: Var) -> tuple[Var, Var]:
        """Density and RGB."""
        source = "neus::nerf_forward(in3_p, in0_p, in1_p, in0->shape[0], in2_p, out0_p, out1_p);"
        points, views, _, spec = self.inputs
        count = points.shape[0]
        return tuple(_run("nerf", source, [(count, 1), (count, 3)], [points, views, packed, spec]))

    def grad(self, d_density: Var | None, d_rgb: Var | None) -> Var:
        """The cotangent of `packed`."""
        source = "neus::nerf_backward(in3_p, in0_p, in1_p, in0->shape[0], in2_p, in4_p, in5_p, out0_p);"
        points, _, packed, _ = self.inputs
        cotangents = _filled((d_density, d_rgb), ((points.shape[0], 1), (points.shape[0], 3)))
        return _run("nerf", source, [tuple(packed.shape)], [*self.inputs, *cotangents])[0]


def _filled(cotangents: tuple[Var | None, ...], shapes: tuple[tuple[int, int], ...]) -> list[Var]:
    """Cotangents of outputs, zeros for those that the loss does not depend on."""
    return [jt.zeros(shape) if value is None else value for value, shape in zip(cotangents, shapes, strict=True)]


def _run(kernel: str, source: str, shapes: list[tuple], inputs: list[Var], scale: float = 1.0) -> list[Var]:
    """One native call with float32 outputs of the given shapes."""
    return native.call(f"{kernel}_mlp.h", source, [(shape, "float32") for shape in shapes], inputs, {"scale": scale})
