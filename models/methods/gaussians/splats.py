"""N Gaussians as a network: their initialisation, and density control by relocation (3DGS-MCMC, arXiv 2404.09591,
sections 4 and 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import expit, logit

from data.errors import UserError
from data.parsed_scene import training_points
from data.rays import PinholeCamera
from data.scenes.scene import Scene
from data.scenes.visual_hull import carve_unit_sphere, masked_views
from models.machine.backend import jt
from models.methods.gaussians.conf import SplatsConfig
from models.ops.gaussians.harmonics import CONSTANT
from models.ops.gaussians.splat_wander import Wander, wander_splats

HULL_CELLS = 64  # cells per side of the visual hull for the initialisation
HULL_MARGIN = 0.02  # working-frame units
FARTHEST = 8.0  # radii of the region: outer limit of background Gaussians, uniform in inverse distance
NEIGHBOURS = 3  # number of nearest neighbours; the RMS distance to them is the initial size
BEYOND = 0.3  # fraction of random Gaussians outside the region of interest, without masks
FIRST_OPACITY = 0.1
SMALLEST, LARGEST = 1e-4, 1.0  # limits of initial sizes, working-frame units
NAMES = ("means", "quats", "sizes", "opacities", "dc", "rest")


class Splats(jt.nn.Module):
    """means [N, 3], quats [N, 4], sizes [N, 3] as logarithms, opacities [N, 1] as logits, dc [N, 3], rest [N, K, 3]."""

    def __init__(self, conf: SplatsConfig) -> None:
        """One Gaussian, a placeholder until a scene or a checkpoint is given."""
        super().__init__()
        for name, shape in zip(NAMES, ((3,), (4,), (3,), (1,), (3,), (conf.rest, 3)), strict=True):
            setattr(self, name, jt.array(np.full((1, *shape), name == "quats", np.float32)))

    def fill(self, values: dict[str, np.ndarray]) -> None:
        """Replace the Gaussians; their number may change."""
        for name in NAMES:
            parameter = getattr(self, name)
            parameter.update(jt.array(np.asarray(values[name], np.float32)).detach())
            parameter.start_grad()

    def wander(self, step: Wander) -> None:
        """Add the SGLD noise of a step to the centres; starts the computation and does not wait for it."""
        means = wander_splats(self.means, self.quats, self.sizes, self.opacities, step)
        self.means.update(means.detach())
        jt.sync([self.means])  # now, so that the inputs are freed

    @property
    def count(self) -> int:
        """The number of Gaussians N."""
        return int(self.means.shape[0])


@dataclass(frozen=True)
class Points:
    """Initial positions and colours."""

    xyz: np.ndarray  # [N, 3] working frame
    rgb: np.ndarray  # [N, 3] in [0, 1]


def from_points(points: Points, conf: SplatsConfig, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Isotropic Gaussians at points; the size is the RMS distance to the nearest neighbours."""
    count = len(points.xyz)
    quats = generator.normal(size=(count, 4))
    distances = cKDTree(points.xyz).query(points.xyz, k=NEIGHBOURS + 1)[0][:, 1:]  # infinite where there are fewer
    size = np.sqrt((distances**2).mean(axis=1))
    largest = LARGEST * np.maximum(1.0, np.linalg.norm(points.xyz, axis=1))
    return {
        "means": points.xyz,
        "quats": quats,
        "sizes": np.log(np.clip(size, SMALLEST, largest))[:, None].repeat(3, axis=1),
        "opacities": np.full((count, 1), logit(FIRST_OPACITY)),
        "dc": (points.rgb - 0.5) / CONSTANT,
        "rest": np.zeros((count, conf.rest, 3)),
    }


def first_points(scene: Scene, conf: SplatsConfig, uses_masks: bool, generator: np.random.Generator) -> Points:
    """The SfM points if there are any, filled up with random points to `conf.first`.

    Random points are in the visual hull of the masks; without masks a fraction BEYOND is outside the region of
    interest and the rest inside.
    """
    if scene.points is not None and len(scene.points.xyz) > 0:
        points = training_points(scene.points)
        xyz, rgb = points.xyz, points.rgb / 255.0
        is_good = np.isfinite(xyz).all(axis=1) & (np.linalg.norm(xyz, axis=1) < 10 * FARTHEST)
        kept = np.flatnonzero(is_good)
        if len(kept) > conf.most:
            kept = np.sort(generator.permutation(kept)[: conf.most])
        if len(kept):
            missing = max(0, min(conf.first, conf.most) - len(kept))
            more = _random(scene, missing, uses_masks, generator)
            return Points(np.concatenate([xyz[kept], more]), np.concatenate([rgb[kept], np.full_like(more, 0.5)]))
    xyz = _random(scene, conf.first, uses_masks, generator)
    return Points(xyz, np.full_like(xyz, 0.5))


def require_seen(points: Points, cameras: Sequence[PinholeCamera], name: str) -> None:
    """Raises UserError if no photograph sees any initial Gaussian, because then none would receive a gradient."""
    for camera in cameras:
        pixels, depth = camera.project(points.xyz)
        x, y = pixels[depth > 0].T
        if ((x >= -0.5) & (y >= -0.5) & (x < camera.width - 0.5) & (y < camera.height - 0.5)).any():
            return
    raise UserError(
        f"{name}: no photograph sees the initial Gaussians, in the region of interest and at the SfM points; "
        "check the cameras with --mode inspect, or choose a region with --roi"
    )


def _random(scene: Scene, count: int, uses_masks: bool, generator: np.random.Generator) -> np.ndarray:
    """Random points [count, 3], working frame."""
    masks = scene.masks if uses_masks else None
    if masks is not None:
        hull = carve_unit_sphere(masked_views(scene.cameras, masks), HULL_CELLS, HULL_MARGIN)
        cells = np.argwhere(hull)
        if len(cells):
            chosen = cells[generator.integers(len(cells), size=count)]
            return (chosen + generator.random((count, 3))) * (2.0 / HULL_CELLS) - 1.0
    directions = generator.normal(size=(count, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    radius = generator.random(count) ** (1 / 3)
    if masks is None:
        far = generator.random(count) < BEYOND
        radius = np.where(far, 1.0 / generator.uniform(1.0 / FARTHEST, 1.0, count), radius)
    return directions * radius[:, None]


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
