"""Native form of `volrend.alpha_from_sdf`. Differentiable once."""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.ops import volrend
from models.ops.kernel import Kernel
from models.ops.network import shapes32
from models.ops.source import Source
from models.structs import Var


@dataclass(frozen=True)
class SectionAlpha:
    """The sizes and constants that reference and native source share."""

    ratio: float  # annealing ratio, see volrend.annealed_cos
    alpha_eps: float = volrend.ALPHA_EPS
    largest_change: float = volrend.LARGEST_CHANGE


SOURCE = Source("section_alpha.h", (SectionAlpha,))


def _native(sdf: Var, cos: Var, lengths: Var, inv_s: Var, ratio: float) -> Var:
    return _Alpha([sdf, cos, lengths, inv_s], SectionAlpha(ratio))(sdf, cos, inv_s)


class _Alpha(jt.Function):
    def __init__(self, inputs: list[Var], layout: SectionAlpha) -> None:
        super().__init__()
        self.inputs, self.layout = inputs, layout

    def execute(self, sdf: Var, cos: Var, inv_s: Var) -> Var:
        inputs = [sdf, cos, self.inputs[2], inv_s]
        return SOURCE.call("section_alpha", self.layout, shapes32(sdf.shape), inputs)[0]

    def grad(self, d_alpha: Var) -> tuple[Var, ...]:
        shapes = shapes32(*(self.inputs[index].shape for index in (0, 1, 3)))
        return tuple(SOURCE.call("section_alpha_backward", self.layout, shapes, [*self.inputs, d_alpha]))


section_alpha = Kernel(volrend.alpha_from_sdf, cpu=_native, cuda=_native)
