"""Adaptive density control: as published (3DGS), or by relocation (MCMC). Functions of arrays.

N Gaussians with the arrays of `splats.Splats`. E, the extent, is 1.1 times the spread of the cameras. 3DGS: arXiv
2308.04079, section 5; MCMC: arXiv 2404.09591, sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, comb

import numpy as np
from scipy.special import expit, logit

from models.methods.gaussians.conf import SplatsConfig
from models.methods.protocol import Parameters

NETWORK = "splats"
SPLIT_SHRINK = 1.6  # reduction of the size of each half of a split
RESET_OPACITY = 0.01
LARGEST_SHARE = 0.1  # of the extent: larger Gaussians are pruned after opacities were reset
MOST_COPIES = 51  # largest number of Gaussians at one position, in the published sum

Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Change:
    """A change of the Gaussians."""

    kept: np.ndarray  # indices of unchanged rows
    added: Values  # new rows


def apply(parameters: Parameters, change: Change) -> None:
    """Select rows and append new ones."""
    parameters.keep(NETWORK, change.kept)
    if len(change.added["means"]):
        parameters.append(NETWORK, change.added)


def rotations(quats: np.ndarray) -> np.ndarray:
    """Rotation matrices [N, 3, 3] of the quaternions."""
    w, x, y, z = (quats / np.maximum(np.linalg.norm(quats, axis=1, keepdims=True), 1e-12)).T
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]
    rows += [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]
    rows += [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]
    return np.stack(rows, axis=1).reshape(-1, 3, 3)


def offsets(values: Mapping[str, np.ndarray], generator: np.random.Generator) -> np.ndarray:
    """A random offset from the centre of each Gaussian, distributed like it, [N, 3]."""
    local = generator.normal(size=(len(values["means"]), 3)) * np.exp(values["sizes"])
    return np.einsum("nij,nj->ni", rotations(values["quats"]), local)


def adaptive(
    values: Values,
    pull: np.ndarray,
    extent: float,
    conf: SplatsConfig,
    flat: bool,
    was_reset: bool,
    generator: np.random.Generator,
) -> Change:
    """Clone small and split large Gaussians with large gradients; prune transparent and oversized ones.

    Args:
        pull: [N], mean norm of the means2d gradient, in units of half an image.
        flat: whether they are surfels, which have no third size.
        was_reset: whether opacities were reset before.
    """
    opacity = expit(values["opacities"][:, 0])
    size = np.exp(values["sizes"][:, : 2 if flat else 3]).max(axis=1)
    goes = opacity < conf.least_opacity
    if was_reset:
        goes |= size > LARGEST_SHARE * extent
    grows = (pull >= conf.least_pull) & ~goes
    room = conf.most - int((~goes).sum())
    if grows.sum() > room:
        order = np.argsort(np.where(grows, -pull, np.inf), kind="stable")[: max(room, 0)]
        grows = np.zeros_like(grows)
        grows[order] = True
    is_large = size > conf.split_size * extent
    clones = {name: array[grows & ~is_large] for name, array in values.items()}
    halves = {name: np.repeat(array[grows & is_large], 2, axis=0) for name, array in values.items()}
    if flat:
        spread = dict(
            halves, sizes=np.concatenate([halves["sizes"][:, :2], np.full((len(halves["sizes"]), 1), -80.0)], 1)
        )
    else:
        spread = halves
    halves["means"] = halves["means"] + offsets(spread, generator)
    halves["sizes"] = halves["sizes"] - np.log(SPLIT_SHRINK)
    kept = np.flatnonzero(~goes & ~(grows & is_large))
    added = {name: np.concatenate([clones[name], halves[name]]) for name in values}
    if len(kept) + len(added["means"]) == 0:
        kept = np.array([int(np.argmax(opacity))])
    return Change(kept, added)


def reset_opacities(opacities: np.ndarray) -> np.ndarray:
    """Logits [N, 1], clamped to RESET_OPACITY."""
    return np.minimum(opacities, logit(RESET_OPACITY))


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
    return new, opacity / np.maximum(total, 1e-12)


def relocated(values: Values, conf: SplatsConfig, generator: np.random.Generator) -> Change | None:
    """Move transparent Gaussians to the positions of opaque ones and add a few; None if nothing changes.

    All Gaussians at one position share its opacity, so the rendering does not change.
    """
    opacity = expit(values["opacities"][:, 0].astype(np.float64))
    is_dead = opacity <= conf.least_opacity
    count = len(opacity)
    target = min(conf.most, ceil(conf.growth * count))
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
    made["opacities"] = logit(np.clip(new, conf.least_opacity, limit))[:, None]
    made["sizes"] = made["sizes"] + np.log(factor)[:, None]
    added = {name: np.repeat(array, copies, axis=0) for name, array in made.items()}
    kept = np.setdiff1d(alive, sources)
    return Change(kept, added)
