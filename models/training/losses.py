"""The terms of the training loss, pure functions on Vars (NeuS, arXiv 2106.10689, section 3.4).

R rays, N sections inside the sphere. Every loss is 0 where rendering and photograph agree.
"""

from __future__ import annotations

import math

from models.backend import jt
from models.config import TrainConfig
from models.ops.elementwise import hard_clip, length, magnitude
from models.structs import LossTerms, RenderOutput, Var

COUNT_EPS = 1e-5  # keeps the mean over an empty mask or an empty sphere finite
# Opacities are kept this far from 0 and 1 in the mask loss; beyond it a ray gets no gradient (as published).
OPACITY_MARGIN = 1e-3
MASK_THRESHOLD = 0.5


def color_loss(rgb: Var, target: Var, mask: Var) -> Var:
    """Sum over channels and rays of |rgb - target| within the mask, by the number of rays in it (3 times the mean)."""
    return (magnitude(rgb - target) * mask).sum() / (mask.sum() + COUNT_EPS)


def eikonal_loss(sdf_gradient: Var, near_sphere: Var) -> Var:
    """Mean of (|gradient| - 1)^2 over the sections where near_sphere [R, N] is 1; gradient [R, N, 3]."""
    error = (length(sdf_gradient) - 1.0).sqr()
    return (near_sphere * error).sum() / (near_sphere.sum() + COUNT_EPS)


def mask_loss(opacity: Var, mask: Var) -> Var:
    """Binary cross-entropy of opacities, which are probabilities already, against a 0/1 mask; both [R, 1]."""
    probability = hard_clip(opacity, OPACITY_MARGIN, 1.0 - OPACITY_MARGIN)
    return -(mask * probability.log() + (1.0 - mask) * (1.0 - probability).log()).mean()


def binary_mask(mask: Var | None, rays: int, conf: TrainConfig) -> Var:
    """The 0/1 mask [R, 1] the losses use: all ones where masks are absent or not asked for."""
    if mask is None or conf.mask_weight == 0.0:
        return jt.ones((rays, 1))
    return (mask > MASK_THRESHOLD).float32()


def training_loss(output: RenderOutput, target: Var, mask: Var, conf: TrainConfig) -> LossTerms:
    """The weighted sum and its terms.

    Args:
        target: [R, 3] colours of the photograph.
        mask: [R, 1], 0 or 1.
    """
    color = color_loss(output.rgb, target, mask)
    eikonal = eikonal_loss(output.sdf_gradient, output.near_sphere)
    silhouette = mask_loss(output.opacity, mask)
    total = color + eikonal * conf.igr_weight + silhouette * conf.mask_weight
    return LossTerms(total=total, color=color, eikonal=eikonal, mask=silhouette)


def masked_psnr(rgb: Var, target: Var, mask: Var) -> Var:
    """Peak signal-to-noise ratio in dB over the rays in the mask."""
    error = ((rgb - target).sqr() * mask).sum() / ((mask.sum() + COUNT_EPS) * 3.0)
    return error.log() * (-10.0 / math.log(10.0))
