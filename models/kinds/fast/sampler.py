"""Batches of packed samples without end, each of as many rays as fill a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from data.cameras import SPAN_LENGTH, rays_of
from data.errors import UserError
from data.io.images import to_float
from data.rays import Rays
from data.scenes.sampler import damage_named, require_views, restore_generator
from data.scenes.scene import Scene
from models.kinds.fast.background import Background
from models.kinds.fast.batch import PackedBatch
from models.kinds.fast.conf import ANCHOR_SHARE
from models.kinds.fast.joined import align
from models.kinds.fast.light import Light
from models.kinds.terms import MASK_THRESHOLD
from models.ops.source import CUDA, device
from models.rendering.occupancy import Occupancy, Walk, Walking

PROBES = 2048  # pixels of the masks by which it is judged whether cells leave the object out
OPEN_PROBES = 512  # pixels of all photographs, likewise: their opacity costs a sixth of a step each time
PROBE_STEPS = 1.0  # in edges of a cell
MOST_DRAWS = 64  # of pixels, where those drawn before see nothing
MOST_VIEWS = 32  # that a batch draws from: each costs a look-up of its own
SPARE_WALK = 1.2  # times the samples that are believed to be needed are walked
WALKED_TO_KEPT = 6  # at most so many samples are walked for each that is kept
FIRST_PER_RAY = 16.0  # samples that a drawn pixel is believed to have before any was walked


class PackedSampler:
    """Batches without end, each of as many rays as fill a budget of samples."""

    def __init__(
        self,
        scene: Scene,
        occupancy: Occupancy,
        most_rays: int,
        samples: int,
        generator: np.random.Generator,
        background: Background | None = None,
    ) -> None:
        """A batch has `samples`, those of its rays and such as lie anywhere."""
        self._background = background
        self.step = 0.0  # distance of samples in the next batches, working-frame units
        self.anywhere = 0.0  # share of the samples in them, at the least, that belongs to no ray
        # Of a walk and its step, which samples are worth a place in the batch: bool [S]; None for all.
        self.sift: Callable[[Walking, float], np.ndarray] | None = None
        self.light: Callable[[Walking, float], Light] | None = None  # where there is a background
        self.anchors: np.ndarray | None = None  # points of the surface, float32 [A, 3], while they are trained on
        self.most_compared: int | None = None  # rays of a batch whose patches are compared, where any are
        self._scene, self._occupancy = scene, occupancy
        self._most_rays, self._samples = most_rays, samples
        self._generator = generator
        self._per_ray = FIRST_PER_RAY
        self._thinned = 1.0  # walked samples for each that shows something, as it was last
        self._to_world = scene.c2w[:, :3, :3] @ np.linalg.inv(scene.intrinsics)
        centres = occupancy.centres()
        self._windows = np.stack(
            [
                _window(scene, centres, occupancy.side, view)
                if background is None
                else np.array([0, 0, *scene.size(view)])
                for view in range(scene.n_views)
            ]
        )
        self.probes = self._probe_rays()  # the same in every run

    def next(self) -> PackedBatch:
        """The next batch."""
        share = self.anywhere if self.anchors is None else max(self.anywhere, ANCHOR_SHARE)
        budget = self._samples - int(share * self._samples)
        for _ in range(MOST_DRAWS):
            drawn = int(np.clip(budget / self._per_ray, 1, self._most_rays))
            view, x, y = _draw(self._generator, self._windows, drawn, MOST_VIEWS)
            rays = self._rays(view, x, y)
            rgb, mask = _seen(self._scene, view, x, y)
            jitter = self._generator.random((drawn, 1), dtype=np.float32)
            if self._background is None:
                batch = self._alone(rays, jitter, budget, rgb, mask, view)
            else:
                batch = self._with_background(rays, jitter, budget, rgb, view)
            if len(batch):
                return batch
            self._occupancy.open()
        raise UserError(
            f"{self._scene.name}: no photograph sees where the object may be; check the cameras, the masks and the "
            "region of interest"
        )

    def _alone(
        self,
        rays: Rays,
        jitter: np.ndarray,
        budget: int,
        rgb: np.ndarray,
        mask: np.ndarray | None,
        view: np.ndarray,
    ) -> PackedBatch:
        """The batch of rays with their samples in the region."""
        walk = self._walk(rays, jitter, budget)
        rows, used = walk.rows, int(walk.offsets[-1])
        self._per_ray = max(used, 1) / max(walk.walked, 1)
        others, anchors = self._others(self._samples - used)
        points = np.concatenate([walk.points[:used], others])
        return PackedBatch(
            rgb[rows],
            None if mask is None else mask[rows],
            view[rows],
            walk.offsets,
            points,
            np.concatenate([walk.directions[:used], np.zeros((self._samples - used, 3), np.float32)]),
            np.array([self.step], np.float32),
            anchors=anchors,
            every=self._every(len(rows)),
        )

    def _others(self, count: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Points [count, 3] that belong to no ray, and how many of them are of structure from motion."""
        if self.anchors is None:
            return self._occupancy.anywhere(count, self._generator), None
        some = self._generator.integers(len(self.anchors), size=min(count, int(ANCHOR_SHARE * self._samples)))
        others = self._occupancy.anywhere(count - len(some), self._generator)
        return np.concatenate([self.anchors[some], others]), np.array([len(some)], np.int32)

    def _with_background(
        self, rays: Rays, jitter: np.ndarray, budget: int, rgb: np.ndarray, view: np.ndarray
    ) -> PackedBatch:
        """The batch of rays with what lies beyond the region; samples in it that show nothing are left out."""
        budget_far = self._background.conf.samples
        most = int(budget * np.clip(SPARE_WALK * self._thinned, 1, WALKED_TO_KEPT))
        walking = self._occupancy.start(rays, jitter, self.step, most)
        # Before it is known where light passes, which spares questions: a card is waited for once, for both answers.
        asked = self._background.ask(rays, jitter) if device() == CUDA else None
        light = self.light(walking, self.step)
        walk = walking.walk
        near = walk.sifted(light.matters, budget)
        self._thinned = int(walk.offsets[-1]) / max(int(light.matters.sum()), 1)
        rays, jitter, passes = rays.at(slice(0, near.walked)), jitter[: near.walked], light.passes[: near.walked]
        far = (asked or self._background.ask(rays, jitter, passes)).lit(rays, passes, budget_far)
        both = align(near, far)
        used, used_far = int(both.near[-1]), int(both.far[-1])
        self._per_ray = max(used, budget * used_far / budget_far, 1) / max(both.walked, 1)
        rows, free = both.rows, self._samples - used
        blank = np.zeros((free, 3), np.float32)
        others, anchors = self._others(free)
        return PackedBatch(
            rgb[rows],
            None,
            view[rows],
            both.near,
            np.concatenate([near.points[:used], others]),
            np.concatenate([near.directions[:used], blank]),
            np.array([self.step], np.float32),
            np.concatenate([near.depths[:used], blank[:, :1]]),
            both.far,
            far.points,
            far.directions,
            far.depths,
            anchors,
            self._every(len(rows)),
        )

    def _every(self, rays: int) -> np.ndarray | None:
        """Of so many rays the patch of one is compared."""
        return None if self.most_compared is None else np.array([-(-rays // self.most_compared)], np.int32)

    def _walk(self, rays: Rays, jitter: np.ndarray, budget: int) -> Walk:
        """The samples of rays, as many as fit the budget."""
        if self.sift is None:
            return self._occupancy.walk(rays, jitter, self.step, budget)
        walking = self._occupancy.start(rays, jitter, self.step, WALKED_TO_KEPT * budget)
        is_kept = self.sift(walking, self.step)
        return walking.walk.sifted(is_kept, budget)

    def _rays(self, view: np.ndarray, x: np.ndarray, y: np.ndarray) -> Rays:
        """The rays of pixels of views."""
        return rays_of(np.stack([x, y], axis=1), view, self._to_world, self._scene.c2w[:, :3, 3])

    def _probe_rays(self) -> Rays | None:
        """Rays of the masks that meet the hull, with a background of all pixels; None where there is neither."""
        has_background = self._background is not None
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
            step = self._occupancy.side * PROBE_STEPS
            budget = len(rays) * (int(SPAN_LENGTH / step) + 2)
            walk = self._occupancy.walk(rays, np.full((len(rays), 1), 0.5, np.float32), step, budget)
            found[walk.rows] = True
        return found

    def lost_share(self) -> float:
        """Of the rays of the masks that meet the hull, those that meet no cell any more."""
        if self.probes is None or not len(self.probes) or self._background is not None:
            return 0.0
        return 1.0 - float(self._meets(self.probes).mean())

    def state(self) -> dict[str, Any]:
        """All that decides the batches to come but the occupancy and the step, ready for JSON."""
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
