"""Which packed samples are visible, computed on the host, where batches are laid out.

NaN counts as visible: the step has to see it, and is skipped then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from data.cameras import SPAN_LENGTH
from data.rays import Rays
from models.estimators.occupancy import OccupancyGrid, Traversal
from models.machine.backend import jt
from models.ops.packed import packed_weights
from models.ops.section_alpha import section_alpha
from models.ops.source import on_host

LEAST_TRANSMITTANCE = 1e-3  # of the region, below which nothing behind it is visible
LEAST_WEIGHT = 3e-5  # of a visible sample; with 3e-4 a surface that is missing does not grow
NO_ANNEALING = 1.0  # the ratio of volrend.annealed_cos: here the growing inv_s alone does the annealing
OPAQUE = 0.5  # a ray that is more opaque in the region meets a surface there
LEAST_ALPHA = 1e-7  # lower bound of alpha, so that each sample that is reached has a weight


@dataclass(frozen=True)
class Visibility:
    """Of a traversal with S samples."""

    transmits: np.ndarray  # bool [traversed], whether the ray sees what lies behind the region
    samples: np.ndarray  # bool [S], which samples are visible


def is_reached(alpha: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Which samples the transmittance reaches, by their opacities [S, 1]: bool [S]; offsets int32 [R + 1]."""
    with on_host(), jt.no_grad():
        weights = packed_weights(jt.array(np.maximum(alpha, np.float32(LEAST_ALPHA))), jt.array(offsets))[0]
        return ~(weights.numpy()[:, 0] <= 0)


def surface_visibility(
    traversal: Traversal, sdf: np.ndarray, inv_s: np.ndarray, step: float, skips_hidden: bool
) -> Visibility:
    """Of samples `step` apart with signed distances [S or more, 1], whose slopes are the differences between samples.

    inv_s: [1]. Without `skips_hidden` all samples count as visible.
    """
    used = int(traversal.offsets[-1])
    transmits, samples = np.ones(traversal.traversed, bool), np.zeros(len(traversal.points), bool)
    if not used:
        return Visibility(transmits, samples)
    weights, transmittance = _weights(traversal, sdf[:used], inv_s, step)
    transmits[traversal.rows] = ~(transmittance <= LEAST_TRANSMITTANCE)
    samples[:used] = ~(weights <= LEAST_WEIGHT) | (not skips_hidden)
    return Visibility(transmits, samples)


def opacities(
    grid: OccupancyGrid, rays: Rays, distances: Callable[[np.ndarray], np.ndarray], inv_s: float
) -> np.ndarray:
    """Opacity [R] of the region along R rays, from samples a cell's edge apart in the cells as they are now.

    distances: points [P, 3] to signed distances [P, 1].
    """
    step, found = grid.side, np.zeros(len(rays), np.float32)
    budget = len(rays) * (int(SPAN_LENGTH / step) + 2)
    traversal = grid.traverse(rays, np.full((len(rays), 1), 0.5, np.float32), step, budget)
    used = int(traversal.offsets[-1])
    if used:
        transmittance = _weights(traversal, distances(traversal.points[:used]), np.array([inv_s], np.float32), step)[1]
        found[traversal.rows] = 1.0 - transmittance
    return found


def lost_share(before: np.ndarray, after: np.ndarray) -> float:
    """The fraction of the rays [R] opaque before that lose half of their opacity; 0 where none is."""
    is_opaque = before > OPAQUE
    return float((after[is_opaque] < 0.5 * before[is_opaque]).mean()) if is_opaque.any() else 0.0


def _weights(traversal: Traversal, sdf: np.ndarray, inv_s: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights [used] of samples with these signed distances [used, 1], and the transmittance of their rays [R]."""
    used = len(sdf)
    slopes = np.diff(sdf[:, 0]) / np.maximum(np.diff(traversal.depths[:used, 0]), step)
    slopes = np.append(slopes, 0.0)
    last = traversal.offsets[1:] - 1
    slopes[last] = np.where(np.diff(traversal.offsets) > 1, slopes[np.maximum(last - 1, 0)], -1.0)
    cos = np.clip(slopes, -1, 1).astype(np.float32)[:, None]
    with on_host(), jt.no_grad():
        given = (jt.array(value) for value in (sdf, cos, np.full((used, 1), step, np.float32), inv_s))
        weights, transmittance = packed_weights(section_alpha(*given, NO_ANNEALING), jt.array(traversal.offsets))
        return weights.numpy()[:, 0], transmittance.numpy()[:, 0]
