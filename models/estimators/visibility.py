"""Which samples of packed rays are visible: approximate weights, and thresholds on them. R rays, S samples."""

from __future__ import annotations

import numpy as np

from models.machine.backend import jt
from models.ops.march import PackedSamples, compact
from models.ops.volrend import alpha_from_sdf, weights_from_alpha
from models.structs import Var

# NaN counts as visible below, so that it reaches the loss and the step is skipped.
LEAST_TRANSMITTANCE = 1e-3  # below it, nothing behind the region or behind samples of the background is visible
# Minimum weight of a visible sample. In training, with 0 DTU scan 24 has 1 dB less, and with 3e-4 missing parts of the
# surface do not grow; in images, where the weights are exact, no pixel of a trained scene changed by a tenth of 1/255.
LEAST_WEIGHT = 3e-5
REACHED, ALL = 0.0, -1.0  # in place of LEAST_WEIGHT: samples with transmittance; all samples
NO_ANNEALING = 1.0  # the ratio of volrend.annealed_cos: the increase of inv_s replaces the annealing
HIT_OPACITY = 0.5  # a ray with a higher opacity in the region hits a surface
LEAST_ALPHA = 1e-7  # lower bound of alpha, so that each sample with transmittance has a weight


def visible_samples(samples: PackedSamples, weights: Var) -> tuple[PackedSamples, np.ndarray]:
    """Those of an image's samples whose weight is not negligible, and their rows; waits for the device."""
    is_kept = above(weights, LEAST_WEIGHT)
    rows = np.flatnonzero(is_kept.numpy())
    rows = rows if len(rows) else np.zeros(1, rows.dtype)  # operations need a row: a sample of no ray
    return compact(samples, is_kept, len(rows)), rows


def above(weights: Var, least: float) -> Var:
    """Which samples have a weight above `least`: bool [S]."""
    return (weights <= least).logical_not()[:, 0]


def transmitted(alpha: Var, offsets: Var) -> Var:
    """Which samples with opacities [S, 1] are reached with a transmittance above LEAST_TRANSMITTANCE: bool [S]."""
    alpha = floored(alpha)
    return (weights_from_alpha(alpha, offsets)[0] <= LEAST_TRANSMITTANCE * alpha).logical_not()[:, 0]


def floored(alpha: Var) -> Var:
    """Opacities of at least LEAST_ALPHA."""
    return jt.ternary(alpha < LEAST_ALPHA, jt.full_like(alpha, LEAST_ALPHA), alpha)


def passes(transmittance: Var) -> Var:
    """Whether rays with this transmittance of the region [R, 1] see what is behind it: bool [R]."""
    return (transmittance <= LEAST_TRANSMITTANCE).logical_not()[:, 0]


def lost_share(before: np.ndarray, after: np.ndarray) -> float:
    """The fraction of the previously opaque rays [R] that lose half of their opacity; 0 if there are none."""
    is_opaque = before > HIT_OPACITY
    return float((after[is_opaque] < 0.5 * before[is_opaque]).mean()) if is_opaque.any() else 0.0


def surface_weights(samples: PackedSamples, sdf: Var, inv_s: Var, step_size: float) -> tuple[Var, Var]:
    """Approximate weights [S, 1] of samples at distance `step_size` with these signed distances [S, 1], and the
    transmittance of their rays [R, 1]; inv_s: [1].

    The slope of the distance at a sample is the mean of those to both neighbours on its ray.
    """
    number, one = jt.index(sdf.shape, dim=0), jt.full((1, 1), -1.0)
    slopes = (sdf[1:] - sdf[:-1]) / jt.maximum(samples.depths[1:] - samples.depths[:-1], step_size)
    after, before = jt.concat([slopes, one], dim=0), jt.concat([one, slopes], dim=0)
    is_first = number == samples.offsets[samples.rays].unsqueeze(1)
    is_last = number + 1 == samples.offsets[samples.rays + 1].unsqueeze(1)
    # At both ends of a ray the one difference there is; of a single sample -1, perpendicular to the surface.
    after = jt.ternary(is_last, jt.ternary(is_first, jt.full_like(before, -1.0), before), after)
    cos = (0.5 * (jt.ternary(is_first, after, before) + after)).clamp(-1.0, 1.0)
    alpha = alpha_from_sdf(sdf, cos, jt.full_like(sdf, step_size), inv_s, NO_ANNEALING)
    return weights_from_alpha(alpha, samples.offsets)
