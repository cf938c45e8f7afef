"""Volume rendering over packed samples: weights from opacities, and sums by weight, ray by ray.

S samples lie one behind the other, ray by ray and along each ray from the camera outwards; those of ray r are
offsets[r] to offsets[r + 1] (int32, [R + 1], ascending, from 0). A ray may have none. Samples from offsets[R] on belong
to no ray: they weigh nothing. The two operations are an algebra: colour, depth, normal and what else is composited is a
sum by weight, and the weights and the light that is left sum to one. Both are differentiable once.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.kernel import Kernel
from models.ops.network import filled, shapes32
from models.ops.scan import count_up_to
from models.ops.source import Source
from models.structs import Var

# Once less light than this is left, a ray ends: what follows could not change a colour of 8 bits.
OPAQUE = 1e-4


@dataclass(frozen=True)
class Packed:
    """The layout of packed samples."""

    samples: int  # S
    channels: int = 1  # of what is summed
    opaque: float = OPAQUE


SOURCE = Source("packed.h", (Packed,))


def _weights_reference(alpha: Var, offsets: Var, opaque: float = OPAQUE) -> tuple[Var, Var]:
    """Opacities [S, 1] -> weights alpha_i T_i, T_i = prod_{j < i} (1 - alpha_j) [S, 1], and what is left [R, 1].

    A sample that less than `opaque` reaches takes no part: it weighs nothing, has no gradient, and takes no light.
    """
    _, starts, is_used = _places(offsets, alpha.shape[0])
    reached = _exclusive_product(1.0 - alpha.detach(), starts)
    takes_part = jt.logical_and(reached >= opaque, is_used).float32().stop_grad()
    alpha = alpha * takes_part
    weights = alpha * _exclusive_product(1.0 - alpha, starts)
    return weights, 1.0 - _sum_reference(weights, jt.ones_like(weights), offsets)


def _sum_reference(weights: Var, values: Var, offsets: Var) -> Var:
    """Sums of values by weight over each ray: [S, 1], [S, C] -> [R, C]; 0 for a ray without samples."""
    rays, _, is_used = _places(offsets, weights.shape[0])
    weighted = jt.ternary(is_used.broadcast(values.shape), weights * values, jt.zeros_like(values))
    shape = [offsets.shape[0] - 1, values.shape[1]]
    return weighted.reindex_reduce("add", shape, ["@e0(i0)", "i1"], extras=[rays])


def _places(offsets: Var, samples: int) -> tuple[Var, Var, Var]:
    """Of each sample its ray [S], the first sample of that [S, 1], and whether it has one [S, 1]."""
    places = jt.arange(samples)
    rays = count_up_to(offsets.unsqueeze(0), places.unsqueeze(0))[0] - 1
    last = offsets.shape[0] - 2
    is_used = (rays <= last).stop_grad()
    rays = rays.minimum(last).stop_grad()
    return rays, offsets[rays].unsqueeze(1).stop_grad(), is_used.unsqueeze(1)


def _exclusive_product(factors: Var, starts: Var) -> Var:
    """Products of the factors of the same ray before each, [S, 1], by doubling; 1 for a ray's first."""
    count = factors.shape[0]
    places = jt.arange(count).unsqueeze(1)

    def before(values: Var, distance: int) -> Var:
        shifted = jt.concat([jt.ones((min(distance, count), 1)), values], dim=0)[:count]
        return jt.ternary(places - distance >= starts, shifted, jt.ones_like(shifted))

    product, step = before(factors, 1), 1
    while step < count:
        product = product * before(product, step)
        step *= 2
    return product


def _weights_native(alpha: Var, offsets: Var, opaque: float = OPAQUE) -> tuple[Var, Var]:
    """One operation each way."""
    return _Weights(alpha, offsets, Packed(alpha.shape[0], opaque=opaque))(alpha)


def _sum_native(weights: Var, values: Var, offsets: Var) -> Var:
    """One operation each way."""
    return _Sum(weights, values, offsets)(weights, values)


class _Weights(jt.Function):
    """Keeps its inputs only."""

    def __init__(self, alpha: Var, offsets: Var, layout: Packed) -> None:
        super().__init__()
        self.alpha, self.offsets, self.layout = alpha, offsets, layout
        self.shapes = [(alpha.shape[0], 1), (offsets.shape[0] - 1, 1)]

    def execute(self, alpha: Var) -> tuple[Var, Var]:
        """Weights, and what is left."""
        return tuple(SOURCE.call("packed_weights", self.layout, shapes32(*self.shapes), [self.offsets, alpha]))

    def grad(self, d_weights: Var | None, d_left: Var | None) -> Var:
        """The cotangent of alpha."""
        inputs = [self.offsets, self.alpha, *filled((d_weights, d_left), self.shapes)]
        return SOURCE.call("packed_weights_backward", self.layout, shapes32(self.alpha.shape), inputs)[0]


class _Sum(jt.Function):
    """Keeps its inputs only."""

    def __init__(self, weights: Var, values: Var, offsets: Var) -> None:
        super().__init__()
        self.inputs = [weights, values]
        self.offsets = offsets
        self.layout = Packed(weights.shape[0], values.shape[1])

    def execute(self, weights: Var, values: Var) -> Var:
        """Sums."""
        shapes = shapes32((self.offsets.shape[0] - 1, values.shape[1]))
        return SOURCE.call("packed_sum", self.layout, shapes, [self.offsets, weights, values])[0]

    def grad(self, d_sums: Var) -> tuple[Var, Var]:
        """Cotangents of weights and values."""
        inputs = [self.offsets, *self.inputs, d_sums]
        shapes = shapes32(*(value.shape for value in self.inputs))
        return tuple(SOURCE.call("packed_sum_backward", self.layout, shapes, inputs))


packed_weights = Kernel(_weights_reference, cpu=_weights_native, cuda=_weights_native)
packed_sum = Kernel(_sum_reference, cpu=_sum_native, cuda=_sum_native)
