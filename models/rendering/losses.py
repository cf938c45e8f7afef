"""The terms of the training losses, pure functions on Vars.

NeuS: arXiv 2106.10689, section 3.4; NeRF: 2003.08934, eq. 6. R rays, N sections inside the sphere.
Every loss is 0 where rendering and photograph agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from models.backend import jt
from models.config import TrainConfig
from models.ops.elementwise import hard_clip, length, magnitude
from models.structs import LossTerms, RadianceOutput, RadianceTerms, RenderOutput, Var

COUNT_EPS = 1e-5  # keeps the mean over an empty mask or an empty sphere finite
# Opacities are kept this far from 0 and 1 in the mask loss; beyond it a ray gets no gradient (as published).
OPACITY_MARGIN = 1e-3
MASK_THRESHOLD = 0.5


@dataclass(frozen=True)
class BatchCounts:
    """What the sums of a whole batch are divided by, for the losses of a part of it."""

    rays: int
    masked: float  # rays in the mask
    near: float  # sections near the sphere


def color_loss(rgb: Var, target: Var, mask: Var, masked: float | None = None) -> Var:
    """Sum over channels and rays of |rgb - target| within the mask, by the number of rays in it (3 times the mean).

    masked: that number, where it is not the mask's own.
    """
    count = mask.sum() if masked is None else masked
    return (magnitude(rgb - target) * mask).sum() / (count + COUNT_EPS)


def squared_error(rgb: Var, target: Var, mask: Var, masked: float | None = None) -> Var:
    """Mean over channels, and over the rays within the mask, of (rgb - target)^2; as for `color_loss`."""
    count = mask.sum() if masked is None else masked
    return ((rgb - target).sqr() * mask).sum() / ((count + COUNT_EPS) * 3.0)


def eikonal_loss(sdf_gradient: Var, near_sphere: Var, near: float | None = None) -> Var:
    """Mean of (|gradient| - 1)^2 over the sections where near_sphere [R, N] is 1; gradient [R, N, 3].

    near: the number of those sections, where it is not near_sphere's own.
    """
    error = (length(sdf_gradient) - 1.0).sqr()
    count = near_sphere.sum() if near is None else near
    return (near_sphere * error).sum() / (count + COUNT_EPS)


def mask_loss(opacity: Var, mask: Var, rays: int | None = None) -> Var:
    """Binary cross-entropy of opacities, which are probabilities already, against a 0/1 mask; both [R, 1].

    rays: what the sum is divided by, where it is not R.
    """
    probability = hard_clip(opacity, OPACITY_MARGIN, 1.0 - OPACITY_MARGIN)
    likelihood = mask * probability.log() + (1.0 - mask) * (1.0 - probability).log()
    return -likelihood.mean() if rays is None else -likelihood.sum() / rays


def binary_mask(mask: Var | None, rays: int, conf: TrainConfig) -> Var:
    """The 0/1 mask [R, 1] the losses use: all ones where masks are absent or not asked for."""
    if mask is None or conf.mask_weight == 0.0:
        return jt.ones((rays, 1))
    return (mask > MASK_THRESHOLD).float32()


def training_loss(
    output: RenderOutput, target: Var, mask: Var, conf: TrainConfig, counts: BatchCounts | None = None
) -> LossTerms:
    """The weighted sum and its terms; with counts, the share that these rays have in a larger batch.

    Args:
        target: [R, 3] colours of the photograph.
        mask: [R, 1], 0 or 1.
        counts: of the larger batch; None where these rays are all of it.
    """
    color = color_loss(output.rgb, target, mask, counts and counts.masked)
    eikonal = eikonal_loss(output.sdf_gradient, output.near_sphere, counts and counts.near)
    silhouette = mask_loss(output.opacity, mask, counts and counts.rays)
    total = color + eikonal * conf.igr_weight + silhouette * conf.mask_weight
    return LossTerms(total=total, color=color, eikonal=eikonal, mask=silhouette)


def radiance_loss(
    output: RadianceOutput, target: Var, mask: Var, conf: TrainConfig, counts: BatchCounts | None = None
) -> RadianceTerms:
    """The squared errors of both passes and, by its weight, the mean of their mask losses; as `training_loss`.

    Without a mask weight every ray counts, whatever the photograph shows behind the object; with one, as for NeuS,
    colours count within the mask and opacities everywhere.
    """
    fine, coarse = (
        squared_error(rgb, target, mask, counts and counts.masked) for rgb in (output.rgb, output.coarse_rgb)
    )
    silhouettes = [
        mask_loss(opacity, mask, counts and counts.rays) for opacity in (output.opacity, output.coarse_opacity)
    ]
    silhouette = sum(silhouettes[1:], start=silhouettes[0]) * 0.5
    return RadianceTerms(total=fine + coarse + silhouette * conf.mask_weight, fine=fine, coarse=coarse, mask=silhouette)


def masked_psnr(rgb: Var, target: Var, mask: Var) -> Var:
    """Peak signal-to-noise ratio in dB over the rays in the mask."""
    return squared_error(rgb, target, mask).log() * (-10.0 / math.log(10.0))
