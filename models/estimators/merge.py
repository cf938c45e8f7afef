"""Packed samples of the region and of the background on the same rays, merged along each ray."""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.structs import RayLayout, Var


@dataclass(frozen=True)
class MergedBackground:
    """F background samples and their positions among the S samples of the region; see `BackgroundSamples`."""

    alpha: Var  # [F, 1]
    rgb: Var  # [F, 3]
    place: Var  # int32 [S + F], position of each sample (first all S, then all F) in the merged order
    sample: Var  # int32 [S + F], sample at each position
    rays: RayLayout  # layout of all S + F samples
    region: int  # S

    def joined(self, alpha: Var, rgb: Var) -> tuple[Var, Var, RayLayout]:
        """Opacity and colour of all samples in merged order."""
        return self._merged(alpha, self.alpha), self._merged(rgb, self.rgb), self.rays

    def of_region(self, weights: Var) -> Var:
        """Weights of all samples [S + F, 1] -> weights of the region [S, 1]."""
        return weights[self.place[: self.region]]

    def _merged(self, near: Var, far: Var) -> Var:
        """Values of the samples [S, C] and [F, C] in merged order [S + F, C]."""
        return _Permuted(self.place, self.sample)(jt.concat([near, far], dim=0))


class _Permuted(jt.Function):
    """Rows in permuted order; the cotangent is permuted by the inverse."""

    def __init__(self, place: Var, sample: Var) -> None:
        super().__init__()
        self.place, self.sample = place, sample

    def execute(self, values: Var) -> Var:
        return values[self.sample]

    def grad(self, d_values: Var) -> Var:
        return d_values[self.place]
