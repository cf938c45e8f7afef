"""Endless batches of packed samples, each of as many rays as fill the sample budget."""

from __future__ import annotations

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
from models.estimators.batch import PackedBatch
from models.estimators.conf import POINTS_SHARE
from models.estimators.merge import align
from models.estimators.occupancy import OccupancyGrid, PendingTraversal, Traversal
from models.estimators.visibility import Visibility
from models.ops.source import CUDA, device
from models.structs import MASK_THRESHOLD

PROBES = 2048  # pixels of the masks by which it is judged whether pruning loses the object
OPEN_PROBES = 512  # pixels of all images, likewise: their opacity costs a sixth of a step each time
PROBE_STEPS = 1.0  # in edges of a cell
MOST_DRAWS = 64  # of pixels, where those drawn before have no samples
MOST_VIEWS = 32  # that a batch draws from: each costs a look-up of its own
SPARE_SAMPLES = 1.2  # times the samples that are expected to be needed are traversed
TRAVERSED_TO_VISIBLE = 6  # at most so many samples are traversed for each that is visible
FIRST_PER_RAY = 16.0  # samples that a drawn pixel is assumed to have before any was traversed


class SamplingPlan(Protocol):
    """What a sampler asks the estimator for each batch."""

    grid: OccupancyGrid
    background: ContractedBackground | None
    step_size: float  # distance of samples, working-frame units
    random_share: float  # fraction of the samples, at the least, that are random points of the hull
    points: np.ndarray | None  # SfM points, float32 [A, 3], while the training uses them
    most_compared: int | None  # rays of a batch whose patches are compared; None: none

    skips_hidden: bool  # whether samples of a scene without background that no light reaches are left out

    def visibility(self, pending: PendingTraversal, step: float) -> Visibility:
        """Which samples of a traversal are visible."""


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
        """The next batch; raises UserError where no image sees the hull."""
        plan = self._plan
        share = plan.random_share if plan.points is None else max(plan.random_share, POINTS_SHARE)
        budget = self._samples - int(share * self._samples)
        for _ in range(MOST_DRAWS):
            drawn = int(np.clip(budget / self._per_ray, 1, self._most_rays))
            view, x, y = _draw(self._generator, self._windows, drawn, MOST_VIEWS)
            rays = self._rays(view, x, y)
            rgb, mask = _seen(self._scene, view, x, y)
            jitter = self._generator.random((drawn, 1), dtype=np.float32)
            if plan.background is None:
                batch = self._of_region(rays, jitter, budget, rgb, mask, view)
            else:
                batch = self._with_background(rays, jitter, budget, rgb, view)
            if len(batch):
                return batch
            plan.grid.open()
        raise UserError(
            f"{self._scene.name}: no photograph sees the region where the object may be; check the cameras, the "
            "masks and the region of interest"
        )

    def _of_region(
        self,
        rays: Rays,
        jitter: np.ndarray,
        budget: int,
        rgb: np.ndarray,
        mask: np.ndarray | None,
        view: np.ndarray,
    ) -> PackedBatch:
        """The batch of rays with their samples in the region."""
        near = self._traversal(rays, jitter, budget)
        rows, used = near.rows, int(near.offsets[-1])
        self._per_ray = max(used, 1) / max(near.traversed, 1)
        others, points = self._others(self._samples - used)
        return PackedBatch(
            rgb[rows],
            None if mask is None else mask[rows],
            view[rows],
            near.offsets,
            np.concatenate([near.points[:used], others]),
            np.concatenate([near.directions[:used], np.zeros((self._samples - used, 3), np.float32)]),
            np.array([self._plan.step_size], np.float32),
            anchors=points,
            every=self._every(len(rows)),
        )

    def _others(self, count: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Points [count, 3] that belong to no ray, SfM points first, and how many of these there are."""
        grid, points = self._plan.grid, self._plan.points
        if points is None:
            return grid.random_points(count, self._generator), None
        some = self._generator.integers(len(points), size=min(count, int(POINTS_SHARE * self._samples)))
        others = grid.random_points(count - len(some), self._generator)
        return np.concatenate([points[some], others]), np.array([len(some)], np.int32)

    def _with_background(
        self, rays: Rays, jitter: np.ndarray, budget: int, rgb: np.ndarray, view: np.ndarray
    ) -> PackedBatch:
        """The batch of rays with their visible samples in the region and in the background."""
        background, step = self._plan.background, self._plan.step_size
        far_budget = background.conf.samples
        most = int(budget * np.clip(SPARE_SAMPLES * self._thinned, 1, TRAVERSED_TO_VISIBLE))
        pending = self._plan.grid.start(rays, jitter, step, most)
        # Before it is known which rays see it, which would save evaluations: a GPU is waited for once, for both.
        query = background.query(rays, jitter) if device() == CUDA else None
        visibility = self._plan.visibility(pending, step)
        near = pending.result.visible(visibility.samples, budget)
        self._thinned = int(pending.result.offsets[-1]) / max(int(visibility.samples.sum()), 1)
        rays, jitter = rays.at(slice(0, near.traversed)), jitter[: near.traversed]
        transmits = visibility.transmits[: near.traversed]
        far = (query or background.query(rays, jitter, transmits)).visible(rays, transmits, far_budget)
        both = align(near, far)
        used, used_far = int(both.near[-1]), int(both.far[-1])
        self._per_ray = max(used, budget * used_far / far_budget, 1) / max(both.traversed, 1)
        rows, free = both.rows, self._samples - used
        blank = np.zeros((free, 3), np.float32)
        others, points = self._others(free)
        return PackedBatch(
            rgb[rows],
            None,
            view[rows],
            both.near,
            np.concatenate([near.points[:used], others]),
            np.concatenate([near.directions[:used], blank]),
            np.array([step], np.float32),
            np.concatenate([near.depths[:used], blank[:, :1]]),
            both.far,
            far.points,
            far.directions,
            far.depths,
            points,
            self._every(len(rows)),
        )

    def _every(self, rays: int) -> np.ndarray | None:
        """The patch of one in so many rays is compared."""
        most = self._plan.most_compared
        return None if most is None else np.array([-(-rays // most)], np.int32)

    def _traversal(self, rays: Rays, jitter: np.ndarray, budget: int) -> Traversal:
        """The visible samples of the first rays that fit the budget."""
        grid, step = self._plan.grid, self._plan.step_size
        if not self._plan.skips_hidden:
            return grid.traverse(rays, jitter, step, budget)
        pending = grid.start(rays, jitter, step, TRAVERSED_TO_VISIBLE * budget)
        visible = self._plan.visibility(pending, step).samples
        return pending.result.visible(visible, budget)

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
            found[grid.traverse(rays, np.full((len(rays), 1), 0.5, np.float32), step, budget).rows] = True
        return found

    def lost_share(self) -> float:
        """The fraction of the rays of the masks that meet the hull but no occupied cell; 0 with a background."""
        if self.probes is None or not len(self.probes) or self._plan.background is not None:
            return 0.0
        return 1.0 - float(self._meets(self.probes).mean())

    def state(self) -> dict[str, Any]:
        """What decides the next batches beside the estimator's own state, ready for JSON."""
        return {
            "per_ray": self._per_ray,
            "thinned": self._thinned,
            "views": len(self._windows),
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; raises UserError, with nothing changed, where it does not fit."""
        with damage_named():
            per_ray, views, generator = float(state["per_ray"]), int(state["views"]), dict(state["generator"])
            thinned = float(state.get("thinned", 1.0))  # checkpoints of earlier versions have none
        require_views(views, self._scene)
        restore_generator(self._generator, generator)
        self._per_ray, self._thinned = per_ray, thinned


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
