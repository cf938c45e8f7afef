"""Where to sample along rays. Pure functions on Vars; `depths` are section starts along the unit direction, ascending.

R rays, N depths. Nothing here is differentiated: the callers work without gradients (NeuS, arXiv 2106.10689, section
3.3 and appendix B; the constants are those of https://github.com/Totoro97/NeuS/blob/6e0a230/models/renderer.py).
"""

from __future__ import annotations

import numpy as np

from models.backend import jt
from models.ops import native
from models.ops.elementwise import length
from models.rendering.volrend import (
    ALPHA_EPS,
    TRANSMITTANCE_EPS,
    alpha_from_cdfs,
    section_cdfs,
    weights_from_alpha,
)
from models.structs import Var

FIRST_INV_S = 64.0  # sharpness assumed by the first up-sampling round; each further round doubles it
COS_MIN = -1e3  # steepest descent of the sdf believed between two depths
DEPTH_EPS = 1e-5  # keeps the slope finite between equal depths
WEIGHT_EPS = 1e-5  # gives every section a little probability, so that a ray without surface is sampled evenly
NEAREST_OUTSIDE = 1e-3  # inverse-distance fraction at which the farthest background depth lies: 1000 far
# What csrc/upsample.h takes over from here, in the order of its UpsampleConstants.
UPSAMPLE_CONSTANTS = {
    "cos_min": COS_MIN,
    "depth_eps": DEPTH_EPS,
    "weight_eps": WEIGHT_EPS,
    "alpha_eps": ALPHA_EPS,
    "transmittance_eps": TRANSMITTANCE_EPS,
}
REGION_DIAMETER = 2.0  # the region of interest is the unit sphere


def inside_depths(near: Var, far: Var, count: int, jitter: Var | None) -> Var:
    """Evenly spaced depths from near to far, [R, 1] -> [R, count].

    Args:
        jitter: [R, 1] uniform in [0, 1), shifts all depths of a ray by up to half a section; None for no shift.
    """
    depths = near + (far - near) * jt.array(np.linspace(0.0, 1.0, count, dtype=np.float32)[None, :])
    if jitter is None:
        return depths
    return depths + (jitter - 0.5) * (REGION_DIAMETER / count)


def outside_depths(far: Var, count: int, inside_count: int, jitter: Var | None) -> Var:
    """Depths beyond the sphere, evenly spaced in inverse distance, [R, 1] -> [R, count] (NeRF++, arXiv 2010.07492).

    Args:
        inside_count: `n_samples`; the first depth lies a section's length beyond `far`.
        jitter: [R, count] uniform in [0, 1), places each depth within its stratum; None for the strata's own.
    """
    fraction = np.linspace(NEAREST_OUTSIDE, 1.0 - 1.0 / (count + 1.0), count, dtype=np.float32)
    if jitter is None:
        placed = jt.array(fraction[None, ::-1].copy())
    else:
        middles = 0.5 * (fraction[1:] + fraction[:-1])
        upper = np.concatenate([middles, fraction[-1:]])
        lower = np.concatenate([fraction[:1], middles])
        stratum = jt.array(np.stack([lower[::-1], (upper - lower)[::-1]]))
        placed = stratum[:1] + stratum[1:] * jitter[:, ::-1]
    return far / placed + 1.0 / inside_count


def round_counts(total: int, rounds: int) -> list[int]:
    """How many depths each up-sampling round adds; the remainder goes to the last, sharpest rounds.

    Rounds that would add nothing are left out of the count's head, so that total < rounds works.
    """
    if total == 0:
        return []
    base, remainder = divmod(total, rounds)
    return [base + (1 if index >= rounds - remainder else 0) for index in range(rounds)]


def upsample(origins: Var, directions: Var, depths: Var, sdf: Var, inv_s: float, count: int) -> tuple[Var, Var, Var]:
    """One up-sampling round: `count` new depths per ray where a density of sharpness inv_s has its weight.

    Args:
        origins, directions: [R, 3].
        depths, sdf: [R, N], N >= 2.
    Returns:
        New depths [R, count]; all depths ascending [R, N + count]; where each of these came from in the concatenation
        of old and new ones [R, N + count].
    """
    if native.is_available():
        return _upsample_natively(origins, directions, depths, sdf, inv_s, count)
    radius = length(points_along(origins, directions, depths))
    new = invert_cdf(depths, upsample_weights(depths, sdf, radius, inv_s), count)
    return new, *merge_depths(depths, new)


def _upsample_natively(
    origins: Var, directions: Var, depths: Var, sdf: Var, inv_s: float, count: int
) -> tuple[Var, Var, Var]:
    """`upsample` in one operation."""
    rows, before = depths.shape
    constants = ", ".join(f'(float)data["{name}"]' for name in UPSAMPLE_CONSTANTS)
    source = (
        "neus::upsample(in0_p, in1_p, in2_p, in3_p, in2->shape[0], in2->shape[1], out0->shape[1], "
        f'data["inv_s"], {{{constants}}}, out0_p, out1_p, out2_p);'
    )
    outputs = [((rows, count), "float32"), ((rows, before + count), "float32"), ((rows, before + count), "int32")]
    data = UPSAMPLE_CONSTANTS | {"inv_s": inv_s}
    return tuple(native.call("upsample.h", source, outputs, [origins, directions, depths, sdf], data))


def upsample_weights(depths: Var, sdf: Var, radius: Var, inv_s: float) -> Var:
    """Weights of the sections between depths, for a density of sharpness inv_s: [R, N] -> [R, N-1].

    The slope of a section is the steeper descent of it and the one before (the first has none before): robust where
    two samples straddle a surface's far side. Sections outside the unit sphere count as flat.
    """
    inside = jt.logical_or(radius[:, :-1] < 1.0, radius[:, 1:] < 1.0).float32()
    lengths = depths[:, 1:] - depths[:, :-1]
    cos = (sdf[:, 1:] - sdf[:, :-1]) / (lengths + DEPTH_EPS)
    before = jt.concat([jt.zeros_like(cos[:, :1]), cos[:, :-1]], dim=1)
    cos = jt.minimum(before, cos).clamp(COS_MIN, 0.0) * inside
    middle = (sdf[:, 1:] + sdf[:, :-1]) * 0.5
    entry_cdf, exit_cdf = section_cdfs(middle, cos, lengths, inv_s)
    return weights_from_alpha(alpha_from_cdfs(entry_cdf, exit_cdf))


def strata(near: Var, far: Var, count: int) -> Var:
    """Borders of `count` even strata from near to far, [R, 1] -> [R, count + 1] (NeRF, arXiv 2003.08934, eq. 2)."""
    return near + (far - near) * jt.array(np.linspace(0.0, 1.0, count + 1, dtype=np.float32)[None, :])


def stratified_depths(borders: Var, jitter: Var | None) -> Var:
    """A depth in each stratum: [R, N + 1] -> [R, N]; jitter [R, N] uniform in [0, 1), None for the middles."""
    share = 0.5 if jitter is None else jitter
    return borders[:, :-1] + (borders[:, 1:] - borders[:, :-1]) * share


def invert_cdf(edges: Var, weights: Var, count: int, jitter: Var | None = None) -> Var:
    """`count` depths at the quantiles (i + 1/2) / count of the histogram `weights` over `edges`.

    Args:
        edges: [R, N] ascending.
        weights: [R, N-1], not negative, of any sum.
        jitter: [R, count] uniform in [0, 1), takes the place of the 1/2; None for the 1/2.
    Returns:
        [R, count] ascending, within the edges.
    """
    weights = weights + WEIGHT_EPS
    density = weights / weights.sum(dim=1, keepdims=True)
    bins = density.shape[1]
    # A triangular product instead of cumsum, which Jittor computes through NumPy, one thread, outside the graph.
    cdf = jt.matmul(density, jt.array(np.triu(np.ones((bins, bins), np.float32))))
    cdf = jt.concat([jt.zeros_like(cdf[:, :1]), cdf], dim=1)
    if jitter is None:
        quantiles = np.linspace(0.5 / count, 1.0 - 0.5 / count, count, dtype=np.float32)
        u = jt.array(np.broadcast_to(quantiles, (edges.shape[0], count)).copy())
    else:
        u = (jt.array(np.arange(count, dtype=np.float32)[None, :]) + jitter) / float(count)
    index = jt.searchsorted(cdf, u, right=True)
    below, above = (index - 1).maximum(0), index.minimum(bins)
    cdf_below, cdf_above = cdf.gather(1, below), cdf.gather(1, above)
    edge_below, edge_above = edges.gather(1, below), edges.gather(1, above)
    width = cdf_above - cdf_below
    width = jt.ternary(width < WEIGHT_EPS, jt.ones_like(width), width)
    return edge_below + (u - cdf_below) / width * (edge_above - edge_below)


def merge_depths(depths: Var, new_depths: Var) -> tuple[Var, Var]:
    """Depths in ascending order, [R, N] and [R, K] -> [R, N+K], and where each came from in their concatenation."""
    joined = jt.concat([depths, new_depths], dim=1)
    order, merged = jt.argsort(joined, dim=1)  # Jittor returns the order first, PyTorch's sort the values
    return merged, order


def section_lengths(depths: Var, last: float) -> Var:
    """Lengths of the sections that begin at depths, [R, N]; the last one, which has no end, gets `last`."""
    tail = jt.full((depths.shape[0], 1), last, dtype="float32")
    return jt.concat([depths[:, 1:] - depths[:, :-1], tail], dim=1)


def points_along(origins: Var, directions: Var, depths: Var) -> Var:
    """Points origins + depth * directions: [R, 3], [R, 3], [R, N] -> [R, N, 3]."""
    return origins.unsqueeze(1) + directions.unsqueeze(1) * depths.unsqueeze(2)
