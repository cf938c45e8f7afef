"""Volume rendering: every formula once, in plain Jittor, and the native forms of some, differentiable once.

S samples of R rays, sorted by ray and by distance; those of ray r are offsets[r] to offsets[r + 1] (int32, [R + 1],
ascending, from 0). A ray may have none. Rows from offsets[R] on belong to no ray: their weights are 0. Equations are
those of NeuS (arXiv 2106.10689), constants of https://github.com/Totoro97/NeuS/blob/6e0a230/models/renderer.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.elementwise import hard_clip, length
from models.ops.source import Kernel, Source
from models.structs import Var

# Added to numerator and denominator of alpha: deep inside an object both CDFs vanish, and alpha would be 0/0; with it
# the inside is opaque. Outside it gives each empty interval an opacity of 1e-5.
ALPHA_EPS = 1e-5
# Added to each factor of the transmittance of dense samples, so that samples behind an opaque interval (alpha = 1) have
# gradients.
TRANSMITTANCE_EPS = 1e-7
# Half the change of the SDF along an interval is clamped to this: there either CDF is 0 or 1, and an infinite product
# would make the gradient of inv_s infinity times zero.
LARGEST_CHANGE = 1e30
# Transmittance at which a ray of packed samples ends: samples behind cannot change an 8-bit colour.
OPAQUE = 1e-4
SEEN_OPACITY = 1e-2  # smallest opacity with a meaningful expected distance
# The factor in the exponent of inv_s makes the learning rate of the networks suitable for this scalar.
EXPONENT_SCALE = 10.0
MAX_EXPONENT = 80.0  # outside the limits; exp of more than 88 is infinite, and its gradient NaN
INV_S_MIN, INV_S_MAX = 1e-6, 1e6  # outside them the sigmoid of sdf * inv_s is a constant or a step in float32


def _inv_s_reference(variance: Var) -> Var:
    """inv_s = exp(10 variance) [1], 1/s of the logistic density, of its parameter [1].

    Clamped, with no gradient outside the limits.
    """
    exponent = hard_clip(variance * EXPONENT_SCALE, -MAX_EXPONENT, MAX_EXPONENT)
    return hard_clip(exponent.exp(), INV_S_MIN, INV_S_MAX)


def annealed_cos(cos: Var, ratio: float) -> Var:
    """The non-positive cosine of the SDF along a ray, annealed at the start of training.

    Args:
        cos: direction . SDF gradient, any shape.
        ratio: 0 at the start, where back faces have gradients too; 1 later, where only front faces count.
    """
    soft = jt.maximum(-cos * 0.5 + 0.5, 0.0)
    hard = jt.maximum(-cos, 0.0)
    return -(soft * (1.0 - ratio) + hard * ratio)


def interval_cdfs(sdf: Var, slope: Var, deltas: Var, inv_s: Var | float) -> tuple[Var, Var]:
    """Phi_s at both ends of intervals with `sdf` at the midpoint and derivative `slope` along the ray.

    All of one shape; inv_s a number or a Var of shape [1]. Returns (entry, exit), with entry >= exit for slope <= 0.
    """
    half = hard_clip(slope * deltas * 0.5, -LARGEST_CHANGE, LARGEST_CHANGE)
    return ((sdf - half) * inv_s).sigmoid(), ((sdf + half) * inv_s).sigmoid()


def alpha_from_cdfs(entry_cdf: Var, exit_cdf: Var) -> Var:
    """Opacity of intervals (eq. 13): (Phi(entry) - Phi(exit)) / Phi(entry)."""
    return (entry_cdf - exit_cdf + ALPHA_EPS) / (entry_cdf + ALPHA_EPS)


def _alpha_reference(sdf: Var, cos: Var, deltas: Var, inv_s: Var, ratio: float) -> Var:
    """Opacities of intervals in [0, 1] (eq. 13); sdf, cos and deltas of one shape, inv_s [1].

    Args:
        cos: direction . SDF gradient.
        deltas: lengths, not differentiated.
        ratio: see `annealed_cos`.
    """
    return alpha_from_cdfs(*interval_cdfs(sdf, annealed_cos(cos, ratio), deltas, inv_s))


def alpha_from_density(density: Var, deltas: Var | float) -> Var:
    """Opacities of intervals of a radiance field (NeRF, arXiv 2003.08934, eq. 3): 1 - exp(-density * length)."""
    return 1.0 - (-density * deltas).exp()


def _weights_reference(alpha: Var, offsets: Var, opaque: float = OPAQUE, eps: float = 0.0) -> tuple[Var, Var]:
    """w_i = alpha_i T_i with T_i = prod_{j<i} (1 - alpha_j + eps) (eq. 10), and the transmittance of whole rays.

    alpha [S, 1] -> weights [S, 1], transmittance [R, 1]. A sample with T_i < `opaque` is ignored: its weight and
    gradient are 0, and it absorbs nothing.
    """
    rays, starts, is_used = _places(offsets, alpha.shape[0])
    reached = _exclusive_product(1.0 - alpha.detach() + eps, starts)
    takes_part = jt.logical_and(reached >= opaque, is_used).float32().stop_grad()
    alpha = alpha * takes_part
    factors = 1.0 - alpha + eps * takes_part
    transmittance = _exclusive_product(factors, starts)
    last = jt.maximum(offsets[1:] - 1, 0).stop_grad()
    whole = (transmittance * factors)[last]
    has_any = (offsets[1:] > offsets[:-1]).unsqueeze(1)
    return alpha * transmittance, jt.ternary(has_any, whole, jt.ones_like(whole))


def dense_weights(alpha: Var) -> Var:
    """The same for rays with N samples each, as published, [R, N] -> [R, N]: up-sampling depends on its rounding."""
    return alpha * exclusive_cumprod(1.0 - alpha + TRANSMITTANCE_EPS)


def _composite_reference(weights: Var, values: Var, offsets: Var) -> Var:
    """Weighted sums of values over each ray (eq. 3): [S, 1], [S, C] -> [R, C]; 0 for a ray without samples."""
    rays, _, is_used = _places(offsets, weights.shape[0])
    weighted = jt.ternary(is_used.broadcast(values.shape), weights * values, jt.zeros_like(values))
    shape = [offsets.shape[0] - 1, values.shape[1]]
    return weighted.reindex_reduce("add", shape, ["@e0(i0)", "i1"], extras=[rays])


def over_background(rgb: Var, opacity: Var, background_rgb: np.ndarray | None) -> Var:
    """Colours [R, 3] with opacity [R, 1] over a constant colour [3]; None for black."""
    if background_rgb is None:
        return rgb
    return rgb + jt.array(background_rgb.reshape(1, 3).astype(np.float32)) * (1.0 - opacity)


def expected_distance(weighted: np.ndarray, opacity: np.ndarray) -> np.ndarray:
    """Mean distance [R, 1] of rays from its weighted sum [R, 1] and the opacity [R, 1]; 0 if that is too small."""
    return np.divide(weighted, opacity, out=np.zeros_like(weighted), where=opacity > SEEN_OPACITY)


def points_along(origins: Var, directions: Var, depths: Var) -> Var:
    """Points origins + depth * directions: [R, 3], [R, 3], [R, N] -> [R, N, 3]."""
    return origins.unsqueeze(1) + directions.unsqueeze(1) * depths.unsqueeze(2)


def inverted_sphere(points: Var) -> Var:
    """NeRF++ coordinates (x / r, 1 / r) of points outside the unit sphere, r >= 1: [..., 3] -> [..., 4]."""
    radius = jt.maximum(length(points, keepdims=True), 1.0)
    return jt.concat([points / radius, 1.0 / radius], dim=-1)


def dense_offsets(rays: int, per_ray: int) -> Var:
    """The offsets [R + 1] of R rays with `per_ray` samples each."""
    return jt.array(np.arange(rays + 1, dtype=np.int32) * per_ray).stop_grad()


def _places(offsets: Var, samples: int) -> tuple[Var, Var, Var]:
    """The ray [S] of each sample, the first sample of that ray [S, 1], and whether the sample has a ray [S, 1]."""
    places = jt.arange(samples)
    rays = count_up_to(offsets.unsqueeze(0), places.unsqueeze(0))[0] - 1
    last = offsets.shape[0] - 2
    is_used = (rays <= last).stop_grad()
    rays = rays.minimum(last).stop_grad()
    return rays, offsets[rays].unsqueeze(1).stop_grad(), is_used.unsqueeze(1)


def _exclusive_product(factors: Var, starts: Var) -> Var:
    """Exclusive products of the factors of the same ray, [S, 1], by doubling; 1 for the first of a ray."""
    count = factors.shape[0]
    places = jt.arange(count).unsqueeze(1)

    def before(values: Var, distance: int) -> Var:
        shifted = jt.concat([jt.ones((min(distance, count), 1)), values], dim=0)[:count]
        return jt.ternary(places - distance >= starts, shifted, jt.ones_like(shifted))

    product, step = before(factors, 1), 1
    while step < count:
        product = product * before(product, step)
        step *= 2
    return product


def exclusive_cumprod(factors: Var) -> Var:
    """y_i = prod_{j<i} x_j, [R, N] -> [R, N], y_0 = 1, by doubling (Hillis and Steele 1986): log2 N products.

    Exact for factors of any sign and for zeros; differentiable to any order, with no division. Jittor's own scans are
    not used (`tests/test_architecture.py`): its `cumprod` is exp(cumsum(log x)), NaN for a zero factor, in value or
    gradient; its `cumsum` of rows calls a block-wide CUDA scan in a loop that some threads of the block have left,
    which is undefined (`extern/cuda/cub/ops/cub_cumsum_op.cc`).
    """
    count = factors.shape[1]
    product = jt.concat([jt.ones_like(factors[:, :1]), factors[:, :-1]], dim=1)
    step = 1
    while step < count:
        product = jt.concat([product[:, :step], product[:, step:] * product[:, :-step]], dim=1)
        step *= 2
    return product


def count_up_to(ascending: Var, values: Var) -> Var:
    """The number of entries of a row that are at most each value: [R, N], [R, K] -> [R, K] int32.

    Jittor's `searchsorted` calls Python during compilation, see `elementwise.is_finite`.
    """
    return (ascending.unsqueeze(1) <= values.unsqueeze(2)).int32().sum(2)


@dataclass(frozen=True)
class SectionAlpha:
    """The sizes and constants that reference and native source share."""

    ratio: float  # annealing ratio, see annealed_cos
    alpha_eps: float = ALPHA_EPS
    largest_change: float = LARGEST_CHANGE


@dataclass(frozen=True)
class Packed:
    """The layout of packed samples."""

    samples: int  # S
    channels: int = 1  # channels of the sum
    opaque: float = OPAQUE
    eps: float = 0.0  # added to each factor of the transmittance


@dataclass(frozen=True)
class SharpnessEnds:
    """The constants of inv_s."""

    scale: float = EXPONENT_SCALE
    most: float = MAX_EXPONENT
    low: float = INV_S_MIN
    high: float = INV_S_MAX


ALPHA_SOURCE, PACKED_SOURCE = Source("section_alpha.h", (SectionAlpha,)), Source("packed.h", (Packed,))
SHARPNESS_SOURCE = Source("sharpness.h", (SharpnessEnds,))


def _alpha_native(sdf: Var, cos: Var, lengths: Var, inv_s: Var, ratio: float) -> Var:
    inputs = [sdf, cos, lengths, inv_s]
    return ALPHA_SOURCE.differentiable("section_alpha", SectionAlpha(ratio), [sdf.shape], inputs, (0, 1, 3))


def _weights_native(alpha: Var, offsets: Var, opaque: float = OPAQUE, eps: float = 0.0) -> tuple[Var, Var]:
    layout, shapes = Packed(alpha.shape[0], 1, opaque, eps), [alpha.shape, (offsets.shape[0] - 1, 1)]
    return PACKED_SOURCE.differentiable("packed_weights", layout, shapes, [offsets, alpha], (1,))


def _composite_native(weights: Var, values: Var, offsets: Var) -> Var:
    layout, shapes = Packed(*values.shape), [(offsets.shape[0] - 1, values.shape[1])]
    return PACKED_SOURCE.differentiable("packed_sum", layout, shapes, [offsets, weights, values], (1, 2))


def _inv_s_native(variance: Var) -> Var:
    return SHARPNESS_SOURCE.differentiable("sharpness", SharpnessEnds(), [(1,)], [variance])


inv_s_of = Kernel(_inv_s_reference, cpu=_inv_s_native, cuda=_inv_s_native)
alpha_from_sdf = Kernel(_alpha_reference, cpu=_alpha_native, cuda=_alpha_native)
weights_from_alpha = Kernel(_weights_reference, cpu=_weights_native, cuda=_weights_native)
composite = Kernel(_composite_reference, cpu=_composite_native, cuda=_composite_native)


def ray_weights(alpha: Var, offsets: Var, is_dense: bool) -> tuple[Var, Var]:
    """Weights w_i = alpha_i T_i [S, 1] of opacities [S, 1], and their sums, the opacities of rays [R, 1].

    Dense samples follow the published code: no ray ends early, and each factor of the transmittance has an epsilon.
    """
    if is_dense:
        weights, _ = weights_from_alpha(alpha, offsets, 0.0, TRANSMITTANCE_EPS)
        return weights, composite(weights, jt.ones_like(weights), offsets)
    weights, transmittance = weights_from_alpha(alpha, offsets)
    return weights, 1.0 - transmittance
