"""Native forms of `volrend.weights_from_alpha` and `volrend.composite`. Differentiable once."""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.ops import volrend
from models.ops.kernel import Kernel
from models.ops.network import filled, shapes32
from models.ops.source import Source
from models.structs import Var


@dataclass(frozen=True)
class Packed:
    """The layout of packed samples."""

    samples: int  # S
    channels: int = 1  # channels of the sum
    opaque: float = volrend.OPAQUE
    eps: float = 0.0  # added to each factor of the transmittance


SOURCE = Source("packed.h", (Packed,))


def _weights_native(alpha: Var, offsets: Var, opaque: float = volrend.OPAQUE, eps: float = 0.0) -> tuple[Var, Var]:
    return _Weights(alpha, offsets, Packed(alpha.shape[0], opaque=opaque, eps=eps))(alpha)


def _sum_native(weights: Var, values: Var, offsets: Var) -> Var:
    return _Sum(weights, values, offsets)(weights, values)


class _Weights(jt.Function):
    def __init__(self, alpha: Var, offsets: Var, layout: Packed) -> None:
        super().__init__()
        self.alpha, self.offsets, self.layout = alpha, offsets, layout
        self.shapes = [(alpha.shape[0], 1), (offsets.shape[0] - 1, 1)]

    def execute(self, alpha: Var) -> tuple[Var, Var]:
        return tuple(SOURCE.call("packed_weights", self.layout, shapes32(*self.shapes), [self.offsets, alpha]))

    def grad(self, d_weights: Var | None, d_left: Var | None) -> Var:
        inputs = [self.offsets, self.alpha, *filled((d_weights, d_left), self.shapes)]
        return SOURCE.call("packed_weights_backward", self.layout, shapes32(self.alpha.shape), inputs)[0]


class _Sum(jt.Function):
    def __init__(self, weights: Var, values: Var, offsets: Var) -> None:
        super().__init__()
        self.inputs = [weights, values]
        self.offsets = offsets
        self.layout = Packed(weights.shape[0], values.shape[1])

    def execute(self, weights: Var, values: Var) -> Var:
        shapes = shapes32((self.offsets.shape[0] - 1, values.shape[1]))
        return SOURCE.call("packed_sum", self.layout, shapes, [self.offsets, weights, values])[0]

    def grad(self, d_sums: Var) -> tuple[Var, Var]:
        inputs = [self.offsets, *self.inputs, d_sums]
        shapes = shapes32(*(value.shape for value in self.inputs))
        return tuple(SOURCE.call("packed_sum_backward", self.layout, shapes, inputs))


packed_weights = Kernel(volrend.weights_from_alpha, cpu=_weights_native, cuda=_weights_native)
packed_sum = Kernel(volrend.composite, cpu=_sum_native, cuda=_sum_native)
