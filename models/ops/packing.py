"""Pack the linear layers of a network into one vector for the native operations: matrix, then bias, layer by layer.

A layer is (matrix [out, in], bias [out]) or, if its matrix is g v / |v| row by row (weight normalisation, arXiv
1602.07868, eq. 2), (v [out, in], g [out, 1], bias [out]). Differentiable once, with respect to all of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.kernel import Kernel
from models.ops.source import Source
from models.structs import Var

Parts = tuple[Var, ...]  # the arrays of a layer
NORMED = 3  # number of arrays of a layer with weight normalisation


@dataclass(frozen=True)
class Packing:
    """The sizes and constants that reference and native source share."""

    widths: tuple[int, ...]  # inputs and outputs of each layer
    normed: tuple[int, ...]  # 1 for a layer with weight normalisation, else 0


SOURCE = Source("packing.h", (Packing,), lists=True)


def matrix_and_bias(parts: Parts) -> tuple[Var, Var]:
    """The matrix and bias of a layer."""
    if len(parts) < NORMED:
        return parts
    direction, length, bias = parts
    return direction * (length / direction.sqr().sum(dim=1, keepdims=True).sqrt()), bias


def end_to_end(matrices: Sequence[tuple[Var, Var]]) -> Var:
    """Layers of (matrix, bias) as one vector [parameters]."""
    return jt.concat([part.reshape((-1,)) for layer in matrices for part in layer], dim=0)


def _reference(layers: Sequence[Parts]) -> Var:
    """All layers as one vector [parameters]."""
    return end_to_end([matrix_and_bias(parts) for parts in layers])


def _native(layers: Sequence[Parts]) -> Var:
    widths = tuple(width for parts in layers for width in reversed(parts[0].shape))
    inputs = [part for parts in layers for part in parts]
    return _Pack(inputs, Packing(widths, tuple(int(len(parts) == NORMED) for parts in layers)))(*inputs)


class _Pack(jt.Function):
    """Stores only its inputs."""

    def __init__(self, inputs: list[Var], layout: Packing) -> None:
        super().__init__()
        self.inputs, self.layout = inputs, layout

    def execute(self, *inputs: Var) -> Var:
        """All layers as one vector [parameters]."""
        pairs = zip(self.layout.widths[::2], self.layout.widths[1::2], strict=True)
        total = sum((columns + 1) * rows for columns, rows in pairs)
        return SOURCE.call("pack", self.layout, [((total,), "float32")], list(inputs))[0]

    def grad(self, d_packed: Var) -> tuple[Var, ...]:
        """Cotangents of the inputs."""
        outputs = [(tuple(value.shape), "float32") for value in self.inputs]
        return tuple(SOURCE.call("pack_backward", self.layout, outputs, [*self.inputs, d_packed]))


# On the CPU the reference is fast enough: its cost depends on the number of parameters, not of points.
pack = Kernel(_reference, cuda=_native)
