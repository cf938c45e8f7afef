"""Endless batches of packed samples, each of as many rays as fill the sample budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from data.cameras import SPAN_LENGTH, rays_of
from data.errors import UserError
from data.io.images import to_float
from data.rays import Rays
from data.scenes.sampler import damage_named, require_views, restore_generator
from data.scenes.scene import Scene
from models.estimators.background import ContractedBackground
from models.estimators.batch import PackedBatch, Placed
from models.estimators.conf import POINTS_SHARE
from models.estimators.occupancy import OccupancyGrid
from models.structs import MASK_THRESHOLD

PROBES = 2048  # pixels of the masks by which it is judged whether pruning loses the object
OPEN_PROBES = 512  # pixels of all images, likewise: their opacity costs a sixth of a step each time
PROBE_STEPS = 1.0  # in edges of a cell
MOST_EMPTY = 64  # batches in a row without samples
MOST_VIEWS = 32  # that a batch draws from: each costs a look-up of its own
SPARE_SAMPLES = 1.2  # times the samples that are expected to be needed are traversed
TRAVERSED_TO_VISIBLE = 6  # at most so many samples are traversed for each that is visible
FIRST_PER_RAY = 16.0  # samples that a drawn pixel is assumed to have before any was traversed
SPARE_POINTS = 1 / 16  # of the samples: points beside those that certainly take part
# What checkpoints of earlier versions lack.
EARLIER = {"thinned": 1.0, "hits": 1.0, "asked": FIRST_PER_RAY}


class SamplingPlan(Protocol):
    """What a sampler reads from the estimator for each batch."""

    grid: OccupancyGrid
    background: ContractedBackground | None
    step_size: float  # distance of samples, working-frame units
    random_share: float  # fraction of the samples, at the least, that are random points of the hull
    points: np.ndarray | None  # SfM points, float32 [A, 3], while the training uses them
    most_compared: int | None  # rays of a batch whose patches are compared; None: none

    skips_hidden: bool  # whether samples of a scene without background that no light reaches are left out

    def place(self, batch: PackedBatch) -> Placed:
        """The samples of a batch."""


class PackedSampler:
    """Endless batches, each of as many rays as fill a budget of samples."""

    def __init__(
        self, scene: Scene, plan: SamplingPlan, most_rays: int, samples: int, generator: np.random.Generator
    ) -> None:
        """A batch has `samples`: those of its rays, random points and SfM points."""
        self._plan, self._scene = plan, scene
        self._most_rays, self._samples = most_rays, samples
        self._generator = generator
        self._per_ray = FIRST_PER_RAY
        self._thinned = 1.0  # traversed samples for each visible one, in the last batch
        self._hits = 1.0  # share of its rays that had samples
        self._asked = FIRST_PER_RAY  # samples of the background for each of its rays whose opacity was asked for
        self._empty = 0  # batches in a row without samples
        self._last: PackedBatch | None = None  # until its samples were counted
        self._to_world = scene.c2w[:, :3, :3] @ np.linalg.inv(scene.intrinsics)
        centres, side = plan.grid.centres(), plan.grid.side
        self._windows = np.stack(
            [
                _window(scene, centres, side, view) if plan.background is None else np.array([0, 0, *scene.size(view)])
                for view in range(scene.n_views)
            ]
        )
        self.probes = self._probe_rays()  # the same in every run

    def next(self) -> PackedBatch:
        """The next batch; raises UserError where the last ones had no samples: no image sees the hull."""
        self._follow()
        plan = self._plan
        share = plan.random_share if plan.points is None else max(plan.random_share, POINTS_SHARE)
        budget = self._samples - int(share * self._samples)
        drawn = int(np.clip(budget / self._per_ray, 1, self._most_rays))
        view, x, y = _draw(self._generator, self._windows, drawn, MOST_VIEWS)
        rays = self._rays(view, x, y)
        rgb, mask = _seen(self._scene, view, x, y)
        jitter = self._generator.random((drawn, 1), dtype=np.float32)
        others, points = self._others(self._samples - budget)
        self._last = PackedBatch(
            rays.origins,
            rays.directions,
            rays.near,
            rays.far,
            jitter,
            rgb,
            view,
            others,
            np.array([plan.step_size], np.float32),
            self._sizes(drawn, budget),
            mask if plan.background is None else None,
            points,
            self._every(drawn),
            plan.place,
        )
        return self._last

    def _sizes(self, rays: int, budget: int) -> np.ndarray:
        """`PackedBatch.sizes`, estimated from the last batch.

        On the CPU an unused row costs as much as a sample.
        """
        background = self._plan.background
        if not (self._plan.skips_hidden or background is not None):
            return np.array([self._samples, budget, budget, 0, 0], np.int32)
        walked = budget * np.clip(self._thinned, 1, TRAVERSED_TO_VISIBLE)
        walked = max(budget, min(walked, SPARE_SAMPLES * rays * self._per_ray * self._thinned))
        beyond = (0, 0) if background is None else (max(1, self._asked * rays * SPARE_SAMPLES), background.conf.samples)
        return np.array([self._samples, walked, budget, *beyond], np.int32)

    def _follow(self) -> None:
        """Update the averages by the sample counts of the last batch."""
        last, self._last = self._last, None
        if last is None or "placed" not in vars(last):
            return
        counts = last.placed.counts
        self._empty = 0 if counts.hits else self._empty + 1
        if counts.rays and not counts.hits:
            self._plan.grid.open()
        if self._empty == MOST_EMPTY:
            raise UserError(
                f"{self._scene.name}: no photograph sees the region where the object may be; check the cameras, "
                "the masks and the region of interest"
            )
        if counts.rays == 0:  # not even one fitted
            self._asked = 2 * max(self._asked, 1.0)
            return
        budget, far_budget, rays = int(last.sizes[2]), max(int(last.sizes[4]), 1), counts.rays
        self._per_ray = max(counts.near, budget * counts.far / far_budget, 1) / rays
        self._thinned = max(counts.walked, 1) / max(counts.near, 1)
        self._hits, self._asked = counts.hits / rays, counts.asked / rays

    def _others(self, free: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Points [P, 3] of no ray, SfM points first, and how many of these there are.

        So many samples are `free` for certain; where more turn out to be, points are taken again.
        """
        grid, points = self._plan.grid, self._plan.points
        count = free + int(SPARE_POINTS * self._samples)
        if points is None:
            return grid.random_points(count, self._generator), None
        some = self._generator.integers(len(points), size=min(free, int(POINTS_SHARE * self._samples)))
        others = grid.random_points(count - len(some), self._generator)
        return np.concatenate([points[some], others]), np.array([len(some)], np.int32)

    def _every(self, rays: int) -> np.ndarray | None:
        """`PackedBatch.every`, by the number of rays that are expected to have samples."""
        most = self._plan.most_compared
        return None if most is None else np.array([max(1, math.ceil(rays * self._hits / most))], np.int32)

    def _rays(self, view: np.ndarray, x: np.ndarray, y: np.ndarray) -> Rays:
        return rays_of(np.stack([x, y], axis=1), view, self._to_world, self._scene.c2w[:, :3, 3])

    def _probe_rays(self) -> Rays | None:
        """Rays of the masks that meet the hull, or with a background of all pixels; None without either."""
        has_background = self._plan.background is not None
        if self._scene.masks is None and not has_background:
            return None
        count = OPEN_PROBES if has_background else PROBES
        view, x, y = _draw(np.random.default_rng(0), self._windows, count, len(self._windows))
        if has_background:
            return self._rays(view, x, y)
        rays, mask = self._rays(view, x, y), _seen(self._scene, view, x, y)[1]
        rays = rays.at(mask[:, 0] > MASK_THRESHOLD)
        return rays.at(self._meets(rays))

    def _meets(self, rays: Rays) -> np.ndarray:
        """Whether rays have samples in the cells as they are now: bool [R]."""
        found = np.zeros(len(rays), bool)
        if len(rays):
            grid = self._plan.grid
            step = grid.side * PROBE_STEPS
            budget = len(rays) * (int(SPAN_LENGTH / step) + 2)
            samples = grid.march(rays, np.full((len(rays), 1), 0.5, np.float32), step, budget)
            found = np.diff(samples.offsets.numpy()) > 0
        return found

    def lost_share(self) -> float:
        """The fraction of the rays of the masks that meet the hull but no occupied cell; 0 with a background."""
        if self.probes is None or not len(self.probes) or self._plan.background is not None:
            return 0.0
        return 1.0 - float(self._meets(self.probes).mean())

    def state(self) -> dict[str, Any]:
        """What decides the next batches beside the estimator's own state, ready for JSON."""
        self._follow()
        return {
            "per_ray": self._per_ray,
            "thinned": self._thinned,
            "hits": self._hits,
            "asked": self._asked,
            "views": len(self._windows),
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; raises UserError, with nothing changed, where it does not fit."""
        with damage_named():
            per_ray, views, generator = float(state["per_ray"]), int(state["views"]), dict(state["generator"])
            counts = [float(state.get(name, value)) for name, value in EARLIER.items()]
        require_views(views, self._scene)
        restore_generator(self._generator, generator)
        self._per_ray, self._last = per_ray, None
        self._thinned, self._hits, self._asked = counts


def _draw(
    generator: np.random.Generator, windows: np.ndarray, count: int, most_views: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """View, x and y [count] of pixels of some views, uniform over their windows [V, 4] and sorted by view."""
    chosen = np.sort(generator.permutation(len(windows))[:most_views])
    sizes = (windows[chosen, 2:] - windows[chosen, :2]).astype(np.float64)
    area = sizes.prod(axis=1)
    view = np.sort(generator.choice(len(chosen), count, p=area / area.sum()))
    places = windows[chosen[view], :2] + (generator.random((count, 2)) * sizes[view]).astype(np.int64)
    return chosen[view].astype(np.int32), places[:, 0], places[:, 1]


def _window(scene: Scene, centres: np.ndarray, side: float, view: int) -> np.ndarray:
    """The pixels of a view that may see the hull: left, top, right, bottom, the last two exclusive; int64 [4].

    The hull is given by the centres [P, 3] of its cells and their side.
    """
    width, height = scene.size(view)
    whole = np.array([0, 0, width, height])
    to_camera = scene.intrinsics[view] @ scene.c2w[view, :3, :3].T
    x, y, depth = to_camera @ (centres - scene.c2w[view, :3, 3]).T
    if (depth <= side).any():
        return whole
    reach = side * scene.intrinsics[view, 0, 0] / depth.min() + 1
    low = np.floor([(x / depth).min() - reach, (y / depth).min() - reach])
    high = np.ceil([(x / depth).max() + reach, (y / depth).max() + reach]) + 1
    window = np.concatenate([np.clip(low, 0, whole[2:] - 1), np.clip(high, 1, whole[2:])]).astype(np.int64)
    return window if (window[2:] > window[:2]).all() else whole


def _seen(scene: Scene, view: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Colours [R, 3] and masks [R, 1] of pixels, sorted by view."""
    views, starts = np.unique(view, return_index=True)
    parts = [(one, slice(start, end)) for one, start, end in zip(views, starts, [*starts[1:], len(view)], strict=True)]
    rgb = np.concatenate([to_float(scene.images[one][y[part], x[part]]) for one, part in parts])
    if scene.masks is None:
        return rgb, None
    return rgb, np.concatenate([to_float(scene.masks[one][y[part], x[part]]) for one, part in parts])[:, None]
