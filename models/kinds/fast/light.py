"""What light does along packed samples, told on the host, where batches are laid out.

What is not a number is kept: the step has to see it, which then is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from data.cameras import SPAN_LENGTH
from data.rays import Rays
from models.machine.backend import jt
from models.ops.packed import packed_weights
from models.ops.section_alpha import section_alpha
from models.ops.source import on_host
from models.rendering.occupancy import Occupancy, Walk

PASSES = 1e-3  # of the light, below which nothing is seen through the region
MATTERS = 3e-5  # weight below which a sample shows nothing; with 3e-4 a surface that is missing does not grow
FULL_COS = 1.0  # of the annealing of section angles (volrend.annealed_cos): none, the sharpness alone does it here
OPAQUE = 0.5  # a ray that is more opaque in the region meets a surface there
LEAST_ALPHA = 1e-7  # that a sample is taken for as it is asked what light reaches


@dataclass(frozen=True)
class Light:
    """What light does along the rays of a walk of S samples."""

    passes: np.ndarray  # bool [walked], whether it comes through the region
    matters: np.ndarray  # bool [S], which samples show something


def is_lit(alpha: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Which samples light reaches, by their opacities [S, 1]: bool [S]; offsets int32 [R + 1] as in `ops.packed`."""
    with on_host(), jt.no_grad():
        weights = packed_weights(jt.array(np.maximum(alpha, np.float32(LEAST_ALPHA))), jt.array(offsets))[0]
        return ~(weights.numpy()[:, 0] <= 0)


def through_surface(walk: Walk, sdf: np.ndarray, inv_s: np.ndarray, step: float, sifts: bool) -> Light:
    """What light does in a walk whose samples, `step` apart, have the signed distances [S, 1], and more behind them.

    Slopes are those between samples. inv_s: [1]; `sifts`: whether it is asked what a sample shows, else all matter.
    """
    used = int(walk.offsets[-1])
    passes, matters = np.ones(walk.walked, bool), np.zeros(len(walk.points), bool)
    if not used:
        return Light(passes, matters)
    weights, left = _weights(walk, sdf[:used], inv_s, step)
    passes[walk.rows] = ~(left <= PASSES)
    matters[:used] = ~(weights <= MATTERS) | (not sifts)
    return Light(passes, matters)


def opacities(
    occupancy: Occupancy, rays: Rays, distances: Callable[[np.ndarray], np.ndarray], inv_s: float
) -> np.ndarray:
    """How opaque the region is along R rays, by samples a cell's side apart in the cells as they are now: [R].

    distances: points [P, 3] to signed distances [P, 1].
    """
    step, found = occupancy.side, np.zeros(len(rays), np.float32)
    budget = len(rays) * (int(SPAN_LENGTH / step) + 2)
    walk = occupancy.walk(rays, np.full((len(rays), 1), 0.5, np.float32), step, budget)
    used = int(walk.offsets[-1])
    if used:
        left = _weights(walk, distances(walk.points[:used]), np.array([inv_s], np.float32), step)[1]
        found[walk.rows] = 1.0 - left
    return found


def lost_share(before: np.ndarray, after: np.ndarray) -> float:
    """Of the rays [R] that are opaque before, those that lose half of it: 0 where none is."""
    is_opaque = before > OPAQUE
    return float((after[is_opaque] < 0.5 * before[is_opaque]).mean()) if is_opaque.any() else 0.0


def _weights(walk: Walk, sdf: np.ndarray, inv_s: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights [used] of a walk's samples with these signed distances [used, 1], and the light left of its rays."""
    used = len(sdf)
    rises = np.diff(sdf[:, 0]) / np.maximum(np.diff(walk.depths[:used, 0]), step)
    rises = np.append(rises, 0.0)
    last = walk.offsets[1:] - 1
    rises[last] = np.where(np.diff(walk.offsets) > 1, rises[np.maximum(last - 1, 0)], -1.0)
    cos = np.clip(rises, -1, 1).astype(np.float32)[:, None]
    with on_host(), jt.no_grad():
        given = (jt.array(value) for value in (sdf, cos, np.full((used, 1), step, np.float32), inv_s))
        weights, left = packed_weights(section_alpha(*given, FULL_COS), jt.array(walk.offsets))
        return weights.numpy()[:, 0], left.numpy()[:, 0]
