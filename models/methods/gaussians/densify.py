"""Density control by relocation (3DGS-MCMC, arXiv 2404.09591, sections 4 and 5). Functions of arrays.

N Gaussians with the arrays of `splats.Splats`.
"""

from __future__ import annotations

from math import ceil, comb

import numpy as np
from scipy.special import expit, logit

from models.methods.gaussians.conf import SplatsConfig

NETWORK = "splats"
# As published; fractions of end_iter.
FROM, UNTIL, EVERY = 0.02, 0.8, 100  # densification, every so many steps
LEAST_OPACITY = 0.005  # Gaussians of lower opacity are relocated
GROWTH = 1.05  # of the number, per densification
MOST_COPIES = 51  # largest number of Gaussians at one position, in the published sum

Values = dict[str, np.ndarray]


def is_due(step: int, end_iter: int) -> bool:
    """Whether Gaussians are relocated and added after `step` steps."""
    return FROM <= step / end_iter < UNTIL and step % EVERY == 0


def shared(opacity: np.ndarray, copies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Opacity of each of `copies` Gaussians that together have the given opacity, and the factor on sizes (eqs. 9,
    10).
    """
    new = 1.0 - (1.0 - opacity) ** (1.0 / copies)
    total = np.zeros_like(opacity)
    for i in range(1, int(copies.max()) + 1):
        inner = np.zeros_like(opacity)
        for k in range(i):
            inner += comb(i - 1, k) * (-1) ** k / np.sqrt(k + 1.0) * new ** (k + 1)
        total += np.where(copies >= i, inner, 0.0)
    return new, opacity / total


def relocated(values: Values, conf: SplatsConfig, generator: np.random.Generator) -> tuple[np.ndarray, Values] | None:
    """Move transparent Gaussians to the positions of opaque ones and add a few; None if nothing changes.

    All Gaussians at one position share its opacity, so the rendering does not change. Returns the indices of unchanged
    rows, and the new rows.
    """
    opacity = expit(values["opacities"][:, 0].astype(np.float64))
    is_dead = opacity <= LEAST_OPACITY
    count = len(opacity)
    target = min(conf.most, ceil(GROWTH * count))
    alive = np.flatnonzero(~is_dead)
    wanted = int(is_dead.sum()) + max(0, target - count)
    if wanted == 0 or len(alive) == 0:
        return None
    chosen = generator.choice(alive, size=wanted, p=opacity[alive] / opacity[alive].sum())
    times = np.bincount(chosen, minlength=count)
    times = np.minimum(times, MOST_COPIES - 1)
    sources = np.flatnonzero(times)
    copies = times[sources] + 1
    new, factor = shared(opacity[sources], copies)
    limit = 1.0 - np.finfo(np.float32).eps
    made = {name: array[sources].copy() for name, array in values.items()}
    made["opacities"] = logit(np.clip(new, LEAST_OPACITY, limit))[:, None]
    made["sizes"] = made["sizes"] + np.log(factor)[:, None]
    added = {name: np.repeat(array, copies, axis=0) for name, array in made.items()}
    return np.setdiff1d(alive, sources), added
