"""Terms of losses that several kinds share: pure functions on Vars. R rays.

Each is 0 where rendering and photograph agree. NeuS: arXiv 2106.10689, section 3.4; NeRF: 2003.08934, eq. 6.
"""

from __future__ import annotations

import math

from models.config.blocks import TrainConfig
from models.kinds.protocol import Term
from models.machine.backend import jt
from models.ops.loss_sums import color_sum, eikonal_sum, mask_sum
from models.structs import Var

COUNT_EPS = 1e-5  # keeps the mean over an empty mask or an empty sphere finite
MASK_THRESHOLD = 0.5


def color_term(rgb: Var, target: Var, mask: Var) -> Term:
    """|rgb - target| over channels and rays within the mask, by the number of rays in it (3 times the mean)."""
    return Term(color_sum(rgb, target, mask), mask.sum(), margin=COUNT_EPS)


def squared_term(rgb: Var, target: Var, mask: Var) -> Term:
    """Mean over channels, and over the rays within the mask, of (rgb - target)^2."""
    return Term(((rgb - target).sqr() * mask).sum(), mask.sum() * 3.0, margin=COUNT_EPS * 3.0)


def eikonal_term(sdf_gradient: Var, near_sphere: Var, weight: float = 1.0) -> Term:
    """Mean of (|gradient| - 1)^2 where near_sphere [...] is 1; gradient [..., 3]."""
    return Term(eikonal_sum(sdf_gradient, near_sphere), near_sphere.sum(), weight, COUNT_EPS)


def mask_term(opacity: Var, mask: Var, weight: float = 1.0) -> Term:
    """Binary cross-entropy of opacities, which are probabilities already, against a 0/1 mask; both [R, 1]."""
    return Term(mask_sum(opacity, mask), float(opacity.shape[0]), weight)


def binary_mask(mask: Var | None, rays: int, conf: TrainConfig) -> Var:
    """The 0/1 mask [R, 1] the losses use: all ones where masks are absent or not asked for."""
    if mask is None or conf.mask_weight == 0.0:
        return jt.ones((rays, 1))
    return (mask > MASK_THRESHOLD).float32()


def masked_psnr(rgb: Var, target: Var, mask: Var) -> Var:
    """Peak signal-to-noise ratio in dB over the rays in the mask."""
    return squared_term(rgb, target, mask).mean().log() * (-10.0 / math.log(10.0))


def masked_mean(values: Var, mask: Var) -> Var:
    """Mean of [R, 1] over the rays in the mask."""
    return (values * mask).sum() / (mask.sum() + COUNT_EPS)
