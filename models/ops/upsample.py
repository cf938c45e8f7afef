"""Importance sampling of NeuS: uniform depths, then rounds of new ones near the surface. Not differentiable.

R rays, N depths: interval starts along the unit direction, ascending (NeuS, arXiv 2106.10689, section 3.3 and appendix
B; the constants are those of https://github.com/Totoro97/NeuS/blob/6e0a230/models/renderer.py). A round evaluates the
signed distances that are not known yet, and samples new depths from the weights of a density with its sharpness. The
samples are the midpoints of the S = R N intervals between depths, sorted by ray.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.machine.backend import jt
from models.ops.elementwise import length
from models.ops.network import Weights
from models.ops.sdf_mlp import SOURCE as SDF_SOURCE
from models.ops.sdf_mlp import sdf_distance
from models.ops.sizes import SdfSizes
from models.ops.source import Kernel, Source
from models.ops.volrend import (
    ALPHA_EPS,
    TRANSMITTANCE_EPS,
    alpha_from_cdfs,
    count_up_to,
    dense_weights,
    interval_cdfs,
    points_along,
)
from models.structs import Var

SPHERE_RADIUS = 1.0  # radius of the region of interest
EIKONAL_RADIUS = 1.2  # radius of the eikonal loss, slightly larger so that the border is regular


@dataclass(frozen=True)
class IntervalSizes:
    """The sizes and constants that reference and native source share."""

    per_ray: int  # N
    last: float  # length of a ray's last interval, which has no end
    sphere_radius: float = SPHERE_RADIUS
    eikonal_radius: float = EIKONAL_RADIUS


INTERVALS_SOURCE = Source("intervals.h", (IntervalSizes,))


def interval_lengths(t_starts: Var, last: float) -> Var:
    """Lengths of the intervals that begin at t_starts, [R, N]; the last interval gets `last`."""
    tail = jt.full((t_starts.shape[0], 1), last, dtype="float32")
    return jt.concat([t_starts[:, 1:] - t_starts[:, :-1], tail], dim=1)


def _intervals_reference(origins: Var, directions: Var, t_starts: Var, last: float) -> tuple[Var, ...]:
    """The midpoints of the intervals that begin at t_starts [R, N] along rays [R, 3].

    Returns positions and directions [S, 3]; lengths and distances of the midpoints [S, 1]; 1 or 0 [S, 1] for midpoints
    inside the unit sphere, and inside the larger sphere of the eikonal loss.
    """
    rows, count = t_starts.shape
    deltas = interval_lengths(t_starts, last)
    middles = t_starts + deltas * 0.5
    grid = points_along(origins, directions, middles).stop_grad()
    radius = length(grid).reshape((-1, 1))
    return (
        grid.reshape((-1, 3)),
        directions.unsqueeze(1).broadcast((rows, count, 3)).reshape((-1, 3)).stop_grad(),
        deltas.reshape((-1, 1)),
        middles.reshape((-1, 1)),
        (radius < SPHERE_RADIUS).float32().stop_grad(),
        (radius < EIKONAL_RADIUS).float32().stop_grad(),
    )


def _intervals_native(origins: Var, directions: Var, t_starts: Var, last: float) -> tuple[Var, ...]:
    rows, count = t_starts.shape
    outputs = [(rows * count, width) for width in (3, 3, 1, 1, 1, 1)]
    return tuple(
        INTERVALS_SOURCE.detached("intervals", IntervalSizes(count, last), outputs, [origins, directions, t_starts])
    )


# On the CPU unused values are not computed, and the rest is fused.
intervals = Kernel(_intervals_reference, cuda=_intervals_native)


COS_MIN = -1e3  # steepest descent of the SDF assumed between two depths
DEPTH_EPS = 1e-5  # keeps the derivative finite for equal depths
WEIGHT_EPS = 1e-5  # gives every interval a small probability, so that a ray without a surface is sampled uniformly


@dataclass(frozen=True)
class UpsampleRound:
    """The layout of one round."""

    depths: int  # N
    count: int  # new depths per ray
    inv_s: float  # sharpness of the assumed density
    cos_min: float = COS_MIN
    depth_eps: float = DEPTH_EPS
    weight_eps: float = WEIGHT_EPS
    alpha_eps: float = ALPHA_EPS
    transmittance_eps: float = TRANSMITTANCE_EPS


SOURCE = Source("upsample.h", (UpsampleRound,))
Depths = tuple[Var, Var, Var]


def _reference(origins: Var, directions: Var, depths: Var, sdf: Var, inv_s: float, count: int) -> Depths:
    """`count` new depths per ray, sampled from the weights of a density with sharpness inv_s.

    Args:
        origins, directions: [R, 3].
        depths, sdf: [R, N], N >= 2.

    Returns:
        New depths [R, count]; all depths ascending [R, N + count]; their indices in the concatenation of old and new
            ones [R, N + count].
    """
    radius = length(points_along(origins, directions, depths))
    new = invert_cdf(depths, upsample_weights(depths, sdf, radius, inv_s), count)
    return new, *merge_depths(depths, new)


def _native(origins: Var, directions: Var, depths: Var, sdf: Var, inv_s: float, count: int) -> Depths:
    rows, before = depths.shape
    outputs = [(rows, count), (rows, before + count), ((rows, before + count), "int32")]
    layout = UpsampleRound(before, count, inv_s)
    return tuple(SOURCE.call("upsample", layout, outputs, [origins, directions, depths, sdf]))


def upsample_weights(depths: Var, sdf: Var, radius: Var, inv_s: float) -> Var:
    """Weights of the intervals between depths, for a density of sharpness inv_s: [R, N] -> [R, N-1].

    The derivative of an interval is the steeper descent of this interval and the previous one (the first has none),
    which is robust where two samples are on both sides of a thin object. Intervals outside the unit sphere have
    derivative 0.
    """
    inside = jt.logical_or(radius[:, :-1] < 1.0, radius[:, 1:] < 1.0).float32()
    lengths = depths[:, 1:] - depths[:, :-1]
    cos = (sdf[:, 1:] - sdf[:, :-1]) / (lengths + DEPTH_EPS)
    before = jt.concat([jt.zeros_like(cos[:, :1]), cos[:, :-1]], dim=1)
    cos = jt.minimum(before, cos).clamp(COS_MIN, 0.0) * inside
    middle = (sdf[:, 1:] + sdf[:, :-1]) * 0.5
    entry_cdf, exit_cdf = interval_cdfs(middle, cos, lengths, inv_s)
    return dense_weights(alpha_from_cdfs(entry_cdf, exit_cdf))


def invert_cdf(edges: Var, weights: Var, count: int, jitter: Var | None = None) -> Var:
    """`count` depths at the quantiles (i + 1/2) / count of the histogram `weights` over `edges`.

    Args:
        edges: [R, N] ascending.
        weights: [R, N-1], not negative, of any sum.
        jitter: [R, count] uniform in [0, 1), replaces the 1/2; None for the 1/2.

    Returns:
        [R, count] ascending, within the edges.
    """
    weights = weights + WEIGHT_EPS
    density = weights / weights.sum(dim=1, keepdims=True)
    bins = density.shape[1]
    # A product with a triangular matrix instead of cumsum, which Jittor computes in NumPy on one thread, outside the
    # graph.
    cdf = jt.matmul(density, jt.array(np.triu(np.ones((bins, bins), np.float32))))
    cdf = jt.concat([jt.zeros_like(cdf[:, :1]), cdf], dim=1)
    if jitter is None:
        quantiles = np.linspace(0.5 / count, 1.0 - 0.5 / count, count, dtype=np.float32)
        u = jt.array(np.broadcast_to(quantiles, (edges.shape[0], count)).copy())
    else:
        u = (jt.array(np.arange(count, dtype=np.float32)[None, :]) + jitter) / float(count)
    index = count_up_to(cdf, u)
    below, above = (index - 1).maximum(0), index.minimum(bins)
    cdf_below, cdf_above = cdf.gather(1, below), cdf.gather(1, above)
    edge_below, edge_above = edges.gather(1, below), edges.gather(1, above)
    width = cdf_above - cdf_below
    width = jt.ternary(width < WEIGHT_EPS, jt.ones_like(width), width)
    return edge_below + (u - cdf_below) / width * (edge_above - edge_below)


def merge_depths(depths: Var, new_depths: Var) -> tuple[Var, Var]:
    """Depths in ascending order, [R, N] and [R, K] -> [R, N+K], and their indices in the concatenation."""
    joined = jt.concat([depths, new_depths], dim=1)
    order, merged = jt.argsort(joined, dim=1)  # Jittor returns the order first, PyTorch the values
    return merged, order


upsample = Kernel(_reference, cpu=_native, cuda=_native)


@dataclass(frozen=True)
class Placing:
    """The layout; `round` is the first round, each later one doubles the sharpness."""

    network: SdfSizes
    round: UpsampleRound
    counts: tuple[int, ...]  # new depths of each round
    known: int  # 1 if the distances at the first depths are given


@dataclass(frozen=True)
class NetworkDistance:
    """Signed distances [P, 3] -> [P, 1] of a network that the native form can evaluate itself."""

    weights: Weights
    sizes: SdfSizes

    def __call__(self, points: Var) -> Var:
        """Signed distances [P, 1] at points [P, 3]."""
        return sdf_distance(points, self.weights, self.sizes)


PLACING_SOURCE = Source("placing.h", (SdfSizes, UpsampleRound, Placing), SDF_SOURCE.constants)
Distance = Callable[[Var], Var]  # [P, 3] -> [P, 1]


def rounds(
    origins: Var,
    directions: Var,
    depths: Var,
    sdf: Var | None,
    distance: Distance,
    counts: Sequence[int],
    first_inv_s: float,
) -> list[Var]:
    """The new depths of each round [R, K], then all depths ascending [R, N + all K].

    Args:
        origins, directions: [R, 3].
        depths: [R, N] ascending.
        sdf: signed distances there, [R, N]; None to compute them.
        counts: K of each round; rounds with K = 0 are omitted.
        first_inv_s: sharpness of the first round; each further one doubles it.
    """
    added: list[Var] = []
    unknown = depths if sdf is None else None  # points with unknown distances
    order: Var | None = None  # the order that sorts old and new depths
    for index, count in enumerate(counts):
        if count == 0:
            continue
        if unknown is not None:
            points = points_along(origins, directions, unknown).reshape((-1, 3))
            distances = distance(points).reshape(unknown.shape)
            sdf = jt.concat([sdf, distances], dim=1).gather(1, order) if order is not None else distances
        unknown, depths, order = upsample(origins, directions, depths, sdf, first_inv_s * 2**index, count)
        added.append(unknown)
    return [*added, depths]


def _place_reference(*arguments: Any) -> Var:
    """All depths ascending; the arguments are those of `rounds`."""
    return rounds(*arguments)[-1]


def _place_native(*arguments: Any) -> Var:
    """One operation if the distance is that of a network."""
    origins, directions, depths, sdf, distance, counts, first_inv_s = arguments
    if not isinstance(distance, NetworkDistance) or not any(counts):
        return _place_reference(*arguments)
    rows, before = depths.shape
    layout = Placing(distance.sizes, UpsampleRound(before, 0, first_inv_s), tuple(counts), int(sdf is not None))
    inputs = [origins, directions, depths, depths if sdf is None else sdf, distance.weights.packed]
    return PLACING_SOURCE.call("place", layout, [(rows, before + sum(counts))], inputs)[0]


# On the CPU a round and the distances are separate operations, and fusing them gains nothing.
place = Kernel(_place_reference, cuda=_place_native)
