"""The visible samples among packed samples; only `opacities` waits for the device.

NaN counts as visible, so that it reaches the loss and the step is skipped.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from data.rays import Rays
from models.estimators.occupancy import OccupancyGrid
from models.machine.backend import jt
from models.ops.march import PackedSamples, compact
from models.ops.volrend import packed_weights, section_alpha
from models.structs import Var

LEAST_TRANSMITTANCE = 1e-3  # below it, nothing behind the region or behind samples of the background is visible
# Minimum weight of a visible sample. In training, with 0 DTU scan 24 has 1 dB less, and with 3e-4 missing parts of the
# surface do not grow; in images, where the weights are exact, no pixel of a trained scene changed by a tenth of 1/255.
LEAST_WEIGHT = 3e-5
REACHED, ALL = 0.0, -1.0  # in place of LEAST_WEIGHT: samples with transmittance; all samples
NO_ANNEALING = 1.0  # the ratio of volrend.annealed_cos: the increase of inv_s replaces the annealing
OPAQUE = 0.5  # a ray with a higher opacity in the region hits a surface
LEAST_ALPHA = 1e-7  # lower bound of alpha, so that each sample with transmittance has a weight


# Of S packed samples of R rays: whether each ray sees what is behind the region, bool [R], and the weights of the
# samples [S, 1], approximately.
Visibility = tuple[Var, Var]


def above(weights: Var, least: float) -> Var:
    """Which samples have a weight above `least`: bool [S]."""
    return (weights <= least).logical_not()[:, 0]


def fitted(found: PackedSamples, is_kept: Var, budget: int, exact: bool) -> PackedSamples:
    """`compact` to a sample budget; if `exact`, without unused rows, for which it waits for the device."""
    return compact(found, is_kept, min(budget, max(1, int(is_kept.int32().sum().item()))) if exact else budget)


def density_visibility(alpha: Var, offsets: Var) -> Visibility:
    """Visibility of samples with opacities [S, 1]; offsets int32 [R + 1]. Samples with transmittance have a weight."""
    return jt.ones((offsets.shape[0] - 1,), "bool"), packed_weights(_floored(alpha), offsets)[0]


def transmitted(alpha: Var, offsets: Var) -> Var:
    """Which samples with opacities [S, 1] are reached with a transmittance above LEAST_TRANSMITTANCE: bool [S]."""
    floored = _floored(alpha)
    weights = packed_weights(floored, offsets)[0]
    return (weights <= LEAST_TRANSMITTANCE * floored).logical_not()[:, 0]


def _floored(alpha: Var) -> Var:
    return jt.ternary(alpha < LEAST_ALPHA, jt.full_like(alpha, LEAST_ALPHA), alpha)


def surface_visibility(found: PackedSamples, sdf: Var, inv_s: Var, step: float) -> Visibility:
    """Visibility of samples at distance `step` with signed distances [S, 1]; inv_s: [1].

    The slope of the distance at a sample is the mean of those to both neighbours on its ray.
    """
    return _visibility(*_weights(found, sdf, inv_s, step))


def alpha_visibility(alpha: Var, offsets: Var) -> Visibility:
    """Visibility of samples of a surface with opacities [S, 1]; offsets int32 [R + 1]."""
    return _visibility(*packed_weights(alpha, offsets))


def _visibility(weights: Var, transmittance: Var) -> Visibility:
    return (transmittance <= LEAST_TRANSMITTANCE).logical_not()[:, 0], weights


def opacities(grid: OccupancyGrid, rays: Rays, distances: Callable[[Var], Var], inv_s: Var) -> np.ndarray:
    """Opacity [R] of the region along R rays, from samples at intervals of a cell's edge length in the current cells.

    distances: maps points [P, 3] to signed distances [P, 1]. Waits for the device.
    """
    step = grid.side
    found = grid.probe(rays, step)
    found = found.first(max(1, int(found.offsets[-1:].item())))
    return 1.0 - _weights(found, distances(found.points), inv_s, step)[1].numpy()[:, 0]


def lost_share(before: np.ndarray, after: np.ndarray) -> float:
    """The fraction of the previously opaque rays [R] that lose half of their opacity; 0 if there are none."""
    is_opaque = before > OPAQUE
    return float((after[is_opaque] < 0.5 * before[is_opaque]).mean()) if is_opaque.any() else 0.0


def _weights(found: PackedSamples, sdf: Var, inv_s: Var, step: float) -> tuple[Var, Var]:
    """Weights [S, 1] of samples with these signed distances [S, 1], and the transmittance of their rays [R, 1]."""
    number, one = jt.index(sdf.shape, dim=0), jt.full((1, 1), -1.0)
    slopes = (sdf[1:] - sdf[:-1]) / jt.maximum(found.depths[1:] - found.depths[:-1], step)
    after, before = jt.concat([slopes, one], dim=0), jt.concat([one, slopes], dim=0)
    is_first = number == found.offsets[found.rays].unsqueeze(1)
    is_last = number + 1 == found.offsets[found.rays + 1].unsqueeze(1)
    # At both ends of a ray the one difference there is; of a single sample -1, perpendicular to the surface.
    after = jt.ternary(is_last, jt.ternary(is_first, jt.full_like(before, -1.0), before), after)
    cos = (0.5 * (jt.ternary(is_first, after, before) + after)).clamp(-1.0, 1.0)
    alpha = section_alpha(sdf, cos, jt.full_like(sdf, step), inv_s, NO_ANNEALING)
    return packed_weights(alpha, found.offsets)
