"""Opacity of a NeuS section from the distance in its middle, its slope along the ray, its length and the sharpness.

NeuS, arXiv 2106.10689, eq. 13, as `volrend` states it; differentiable once.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.kernel import Kernel
from models.ops.network import shapes32
from models.ops.source import Source
from models.ops.volrend import ALPHA_EPS, LARGEST_CHANGE, alpha_from_cdfs, annealed_cos, section_cdfs
from models.structs import Var


@dataclass(frozen=True)
class SectionAlpha:
    """The layout."""

    ratio: float  # of annealing, see volrend.annealed_cos
    alpha_eps: float = ALPHA_EPS
    largest_change: float = LARGEST_CHANGE


SOURCE = Source("section_alpha.h", (SectionAlpha,))


def _reference(sdf: Var, cos: Var, lengths: Var, inv_s: Var, ratio: float) -> Var:
    """Opacities [S, 1], in [0, 1], of sections given by their sdf, cos and lengths [S, 1]; inv_s [1].

    Args:
        cos: direction . sdf gradient.
        lengths: constants.
    """
    return alpha_from_cdfs(*section_cdfs(sdf, annealed_cos(cos, ratio), lengths, inv_s))


def _native(sdf: Var, cos: Var, lengths: Var, inv_s: Var, ratio: float) -> Var:
    """One operation each way."""
    return _Alpha([sdf, cos, lengths, inv_s], SectionAlpha(ratio))(sdf, cos, inv_s)


class _Alpha(jt.Function):
    """Keeps its inputs only."""

    def __init__(self, inputs: list[Var], layout: SectionAlpha) -> None:
        super().__init__()
        self.inputs, self.layout = inputs, layout

    def execute(self, sdf: Var, cos: Var, inv_s: Var) -> Var:
        """Opacities."""
        inputs = [sdf, cos, self.inputs[2], inv_s]
        return SOURCE.call("section_alpha", self.layout, shapes32(sdf.shape), inputs)[0]

    def grad(self, d_alpha: Var) -> tuple[Var, ...]:
        """Cotangents of sdf, cos and inv_s."""
        shapes = shapes32(*(self.inputs[index].shape for index in (0, 1, 3)))
        return tuple(SOURCE.call("section_alpha_backward", self.layout, shapes, [*self.inputs, d_alpha]))


section_alpha = Kernel(_reference, cpu=_native, cuda=_native)
