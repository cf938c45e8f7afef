"""The operations that compute the formulas of `ops/volrend.py` for samples of rays, native where possible."""

from __future__ import annotations

from models.machine.backend import jt
from models.ops.volrend import (
    TRANSMITTANCE_EPS,
    alpha_from_density,
    over_background,
    packed_sum,
    packed_weights,
    section_alpha,
)
from models.structs import Var

__all__ = ["alpha_from_density", "alpha_from_sdf", "composite", "over_background", "weights_from_alpha"]

alpha_from_sdf = section_alpha


def weights_from_alpha(alpha: Var, offsets: Var, is_dense: bool) -> tuple[Var, Var]:
    """Weights w_i = alpha_i T_i [S, 1] of opacities [S, 1], and their sums, the opacities of rays [R, 1].

    Dense samples follow the published code: no ray ends early, and each factor of the transmittance has an epsilon.
    """
    if is_dense:
        weights, _ = packed_weights(alpha, offsets, 0.0, TRANSMITTANCE_EPS)
        return weights, packed_sum(weights, jt.ones_like(weights), offsets)
    weights, transmittance = packed_weights(alpha, offsets)
    return weights, 1.0 - transmittance


def composite(weights: Var, values: Var, offsets: Var) -> Var:
    """Sums of values [S, C] by weight along each ray: [R, C]."""
    return packed_sum(weights, values, offsets)
