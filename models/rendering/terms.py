"""Terms of losses, and other values of rays, as pure functions of arrays. R rays."""

from __future__ import annotations

import math

import numpy as np

from models.machine.backend import jt
from models.ops.loss_sums import Rays, loss_sum
from models.structs import MASK_THRESHOLD, Term, Var

COUNT_EPS = 1e-5  # keeps the mean over an empty mask or an empty sphere finite
MASK_NOISE = 8.0 / 255.0  # of JPEG masks around the object


def mean_term(
    kind: str, values: Var, targets: Var | None = None, counts: Var | None = None, rays: Rays | None = None
) -> Term:
    """The mean of a loss over the rows that count; see `models.ops.loss_sums`."""
    total, count = loss_sum(kind, values, targets, counts, rays)
    return Term(total, count, margin=COUNT_EPS)


def color_term(rgb: Var, target: Var, counts: Var) -> Term:
    """|rgb - target| summed over channels and counted rays, divided by their number (3 times the mean)."""
    return mean_term("ABSOLUTE", rgb, target, counts)


def robust_counts(counts: Var, rgb: Var, target: Var, scale: float) -> Var:
    """counts [R, 1] of rays, less where a channel of the colour [R, 3] is off by `scale` or more, as by a highlight.

    The weight of Cauchy's loss of the greatest difference d (Holland and Welsch, 1977): 1 / (1 + (d / scale)^2).
    """
    off = (rgb - target).abs().max(dim=1, keepdims=True).detach() / scale
    return counts / (1.0 + off * off)


def squared_term(rgb: Var, target: Var, counts: Var) -> Term:
    """Mean of (rgb - target)^2 over channels and counted rays."""
    total, count = loss_sum("SQUARED", rgb, target, counts)
    return Term(total, count * 3.0, margin=COUNT_EPS * 3.0)


def eikonal_term(gradient: Var, counts: Var | None = None) -> Term:
    """Mean of (|gradient| - 1)^2 where counts [...] is 1, None: everywhere; gradient [..., 3]."""
    return mean_term("UNIT_LENGTH", gradient, None, counts)


def mask_term(opacity: Var, mask: Var, counts: Var | float = 1.0) -> Term:
    """Binary cross-entropy of opacities, which are probabilities already, against a mask; both [R, 1].

    counts [R, 1]: 1 where a ray counts, else 0; 1.0 where all do.
    """
    if isinstance(counts, float):
        return Term(loss_sum("CROSS_ENTROPY", opacity, mask)[0], float(opacity.shape[0]))
    return mean_term("CROSS_ENTROPY", opacity, mask, counts)


def binary_mask(mask: Var | None, rays: int) -> Var:
    """The 0/1 mask [R, 1] of a mask in [0, 1]; all ones for None."""
    return jt.ones((rays, 1)) if mask is None else (mask > MASK_THRESHOLD).float32()


def masked_target(rgb: Var, mask: Var, behind: np.ndarray | None) -> Var:
    """Target colours [..., 3]: those of the photograph in the mask [..., 1], else the background, None for black.

    Colours at the borders of an alpha channel are composited already, so a small value is enough.
    """
    background = jt.zeros(3) if behind is None else jt.array(behind.astype(np.float32))
    return jt.ternary((mask > MASK_NOISE).broadcast(rgb.shape), rgb, background.broadcast(rgb.shape))


def masked_psnr(rgb: Var, target: Var, mask: Var) -> Var:
    """Peak signal-to-noise ratio in dB over the rays in the mask."""
    return squared_term(rgb, target, mask).mean().log() * (-10.0 / math.log(10.0))


def masked_mean(values: Var, mask: Var) -> Var:
    """Mean of [R, 1] over the rays in the mask."""
    return (values * mask).sum() / (mask.sum() + COUNT_EPS)
