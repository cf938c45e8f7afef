"""What NeRF's renderer hands on. R rays, M sections of the fine pass."""

from __future__ import annotations

from dataclasses import dataclass

from models.structs import Var


@dataclass(frozen=True)
class RadianceOutput:
    """What one batch of rays shows: the fine pass, and what the coarse one is trained by.

    All fields are differentiable but `depths`.
    """

    rgb: Var  # [R, 3]
    opacity: Var  # [R, 1], sum of the weights
    weights: Var  # [R, M], of each section of the fine pass, front to back; M = n_samples + n_importance
    depths: Var  # [R, M], section starts along the unit direction
    coarse_rgb: Var  # [R, 3]
    coarse_opacity: Var  # [R, 1]


@dataclass(frozen=True)
class Comparison:
    """A rendering beside what the photograph shows."""

    render: RadianceOutput
    target: Var  # [R, 3]
    mask: Var  # [R, 1], 0 or 1
