"""From the fields at the middles of sections to the colours of rays (NeuS, arXiv 2106.10689, eqs. 3 and 13).

R rays, N sections, P = R N, ray by ray. Differentiable once.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.elementwise import hard_clip
from models.ops.kernel import Kernel
from models.ops.network import shapes32
from models.ops.source import Source
from models.ops.volrend import (
    ALPHA_EPS,
    LARGEST_CHANGE,
    TRANSMITTANCE_EPS,
    alpha_from_cdfs,
    annealed_cos,
    composite,
    section_cdfs,
    weights_from_alpha,
)
from models.structs import FieldOutput, Var


@dataclass(frozen=True)
class Shading:
    """The layout."""

    sections: int  # N
    ratio: float  # of annealing, see volrend.annealed_cos
    given: int = 0  # bit k is set where the loss depends on output k
    alpha_eps: float = ALPHA_EPS
    largest_change: float = LARGEST_CHANGE
    transmittance_eps: float = TRANSMITTANCE_EPS


@dataclass(frozen=True)
class Shaded:
    """What rays show."""

    rgb: Var  # [R, 3]
    opacity: Var  # [R, 1], sum of the weights
    weights: Var  # [R, N], of each section, front to back
    cdf: Var  # [R, N], Phi_s(sdf) at the section starts


SOURCE = Source("shading.h", (Shading,))


def surface_alpha(field: FieldOutput, views: Var, lengths: Var, inv_s: Var, ratio: float) -> tuple[Var, Var]:
    """Opacities of sections in [0, 1] and Phi_s at their starts, both [R, N].

    Args:
        field: at the middles, of which distance [P, 1] and gradient [P, 3] are read.
        views: [P, 3], the direction of each one's ray.
        lengths: [R, N].
        inv_s: [1], sharpness.
        ratio: see `volrend.annealed_cos`.
    """
    shape = lengths.shape
    slope = annealed_cos((views * field.gradient).sum(dim=1), ratio).reshape(shape)
    entry_cdf, exit_cdf = section_cdfs(field.sdf.reshape(shape), slope, lengths, inv_s)
    return hard_clip(alpha_from_cdfs(entry_cdf, exit_cdf), 0.0, 1.0), entry_cdf


def composited(alpha: Var, rgb: Var, cdf: Var) -> Shaded:
    """Rays of sections of opacities [R, M] and colours [R, M, 3]; `cdf` is handed on."""
    weights = weights_from_alpha(alpha)
    return Shaded(composite(weights, rgb), weights.sum(dim=1, keepdims=True), weights, cdf)


def _reference(field: FieldOutput, rgb: Var, views: Var, lengths: Var, inv_s: Var, ratio: float) -> Shaded:
    """Rays of sections with the fields and the colours [P, 3] at their middles; the rest as `surface_alpha` has it."""
    alpha, cdf = surface_alpha(field, views, lengths, inv_s, ratio)
    return composited(alpha, rgb.reshape((*lengths.shape, 3)), cdf)


def _native(field: FieldOutput, rgb: Var, views: Var, lengths: Var, inv_s: Var, ratio: float) -> Shaded:
    """One operation each way."""
    function = _Shade([views, lengths, field.sdf, field.gradient, rgb, inv_s], Shading(lengths.shape[1], ratio))
    return Shaded(*function(*function.inputs[2:]))


class _Shade(jt.Function):
    """Keeps its inputs and the weights."""

    def __init__(self, inputs: list[Var], layout: Shading) -> None:
        super().__init__()
        self.inputs, self.layout = inputs, layout
        self.weights: Var | None = None

    def execute(self, *fields: Var) -> tuple[Var, ...]:
        """What rays show."""
        views, lengths = self.inputs[:2]
        rows, count = lengths.shape
        outputs = shapes32((rows, 3), (rows, 1), (rows, count), (rows, count))
        found = SOURCE.call("shade", self.layout, outputs, [lengths, views, *fields])
        self.weights = found[2]
        return tuple(found)

    def grad(self, *cotangents: Var | None) -> tuple[Var, ...]:
        """Cotangents of distance, gradient, colours and sharpness."""
        views, lengths, *fields = self.inputs
        given = sum(1 << index for index, value in enumerate(cotangents) if value is not None)
        layout = Shading(self.layout.sections, self.layout.ratio, given)
        present = [lengths if value is None else value for value in cotangents]  # what is not given is not read
        inputs = [lengths, views, *fields, self.weights, *present]
        return tuple(SOURCE.call("shade_backward", layout, shapes32(*(value.shape for value in fields)), inputs))


# On the CPU the reference is as good: rays are few, and what counts there are points.
shade = Kernel(_reference, cuda=_native)
