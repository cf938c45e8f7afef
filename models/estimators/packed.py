"""Occupancy sampling: packed samples in the occupied cells of a grid, of surfaces and of radiance fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from data.errors import UserError
from data.rays import Rays
from data.roi.frustum import Cameras
from data.roi.near_plane import near_plane
from data.roi.visual_hull import carve_unit_sphere, masked_views
from data.scenes.scene import Scene
from models.estimators.background import NEAR_SHARE_BEFORE, ContractedBackground
from models.estimators.base import Estimator
from models.estimators.batch import PackedBatch, Placed
from models.estimators.conf import SamplesConfig
from models.estimators.merge import MergedBackground
from models.estimators.occupancy import OccupancyGrid
from models.estimators.sampler import PackedSampler
from models.estimators.visibility import Visibility
from models.fields.grid_field import GridField
from models.machine.backend import jt
from models.ops.compact import compact, fill, merged_order
from models.ops.march import SOLID, PackedSamples
from models.structs import RayLayout, RaySamples, Var

MOST_LOST = 0.02  # fraction of the probe rays that pruning may make lose the object; above it the cells are kept
# Buffers that checkpoints of earlier versions lack, with the values that these versions worked with.
OF_EARLIER_VERSIONS = {"prunes_after": np.zeros(1, np.int64), "background_near_share": NEAR_SHARE_BEFORE}
VIEW_BUDGET = 1 << 17  # samples of an image that are computed at a time


class OccupancyEstimator(Estimator):
    """Packed samples of rays; it owns the cells, the schedule of step size and levels, and the pruning.

    A subclass decides which cells are empty (`_prune`) and which samples are visible (`visibility`).
    """

    samples_block = "packed"  # the block of its SamplesConfig, for messages
    skips_hidden = False  # see `sampler.SamplingPlan`

    def __init__(
        self,
        conf: SamplesConfig,
        end_iter: int,
        carves: bool,
        grids: Sequence[GridField],
        background: ContractedBackground | None = None,
    ) -> None:
        """`carves`: whether masks, where there are some, bound the region; `grids`: fields with levels to activate."""
        self.conf, self.background = conf, background
        self._end_iter, self._carves, self._grids = end_iter, carves, list(grids)
        self.grid = OccupancyGrid(_ball(conf.cells))
        self.step_size, self.random_share = 0.0, 0.0
        self.points: np.ndarray | None = None  # SfM points that the next batch holds
        self.most_compared: int | None = None
        self._sampler: PackedSampler | None = None
        self._prunes_after = 0  # steps; pruning before them led to a collapse
        self._backdrop: np.ndarray | None = None  # [3], the colour behind the object that masks were derived from

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """Those of the background."""
        return {} if self.background is None else self.background.networks

    def fit(self, scene: Scene) -> None:
        """Carve the visual hull of the masks; without masks, initialise the background instead.

        Raises UserError where the masks leave nothing of the region of interest.
        """
        if scene.masks is not None and self._carves:
            sizes = np.array([scene.size(view) for view in range(scene.n_views)], np.float64)
            views = masked_views(Cameras(scene.intrinsics, scene.c2w, sizes), scene.masks)
            hull = carve_unit_sphere(views, self.conf.cells, self.conf.hull_margin)
            if not hull.any():
                raise UserError(
                    f"{scene.name}: the visual hull of the masks is empty in the region of interest; check the "
                    "masks and the cameras with --mode inspect, or train without masks (train.mask_weight = 0)"
                )
            self.grid.enclose(hull)
            self.background, self._backdrop = None, scene.backdrop
        self.grid.fit(scene.c2w[:, :3, 3], near_plane(scene.c2w[:, :3, 3], scene.points))
        if self.background is not None:
            self.background.fit(scene, self.grid.near_plane)

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PackedSampler:
        """Pixels that may see the hull, of the scene that `fit` was given."""
        self._sampler = PackedSampler(scene, self, batch_size, self.conf.samples, generator)
        self._schedule(0)
        return self._sampler

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """Without a scene: keep the background only where the checkpoint has one."""
        if self._sampler is None and self.background is not None and not shapes.keys() & self.background.networks:
            self.background = None

    def batch(self, arrays: Mapping[str, np.ndarray]) -> PackedBatch:
        """The batch that has these arrays; raises ValueError, KeyError or TypeError where it has others."""
        return PackedBatch.from_arrays(arrays, self.place)

    def share(self, batch: PackedBatch, rank: int, size: int) -> slice | None:
        """Rays with about as many samples for each process; those of no ray go with the last ray."""
        if len(batch) < size:
            return None
        return slice(*batch.borders(size)[rank : rank + 2])

    def draw_noise(self, entries: int, generator: np.random.Generator) -> None:
        """None: the jitter of a batch is drawn with it."""

    def sample(self, batch: PackedBatch, *unused: object) -> RaySamples:
        """The samples of a batch, found on the device."""
        return self._sampled(batch.placed, float(batch.step[0]))

    def _sampled(self, placed: Placed, step: float) -> RaySamples:
        """Samples `step` apart, with the colours of the background."""
        near, far, background = placed.near, placed.far, None
        if far is not None:
            alpha, rgb = self.background.evaluate(far.points, far.directions)
            order, both = merged_order(near, far), RayLayout(near.offsets + far.offsets)
            background = MergedBackground(alpha, rgb, *order, both, near.rays.shape[0])
        deltas = jt.full((near.rays.shape[0], 1), step)
        rays = RayLayout(near.offsets)
        return RaySamples(near.points, near.directions, deltas, rays, near.depths, background=background)

    def place(self, batch: PackedBatch) -> Placed:
        """The samples of a batch that are visible, of the first rays that fit; waits for nothing."""
        samples, walked, kept, *beyond = batch.sizes.tolist()
        step, far, asked = float(batch.step[0]), None, None
        with jt.no_grad():
            found = near = self.grid.march(batch.rays, batch.jitter, step, walked)
            if self.skips_hidden or self.background is not None:
                seen = self.visibility(found, step)
                near = compact(found, seen.samples, kept)
            if self.background is not None:
                far, asked = self.background.place(batch.rays, batch.jitter, seen.transmits, *beyond)
                last = jt.minimum(near.kept, far.kept)
                near, far = _up_to(near, last), _up_to(far, last)
            placed = Placed(fill(near, jt.array(batch.others), samples), far, found.offsets, asked)
            placed.start()
            return placed

    def before_step(self, step: int) -> None:
        """Activate levels, set the step size and, every `prune_every` steps, update the cells."""
        self._schedule(step)
        is_due = step > 0 and step % self.conf.prune_every == 0
        if is_due and self.background is not None:
            self.background.update()
        if step < self.first_pruning:
            if not self.grid.is_open:
                self._reopen()
        elif is_due:
            self._prune()
            if self._sampler is not None and self._sampler.lost_share() > MOST_LOST:
                self.grid.open()

    def after_collapse(self, step: int) -> str:
        """Prune no cell before this step; returns the end of a sentence that says so."""
        self._prunes_after = step
        return f", and no cells are pruned before step {step}"

    @property
    def first_pruning(self) -> float:
        """The step at which pruning begins; later with a background, which could take the place of the region."""
        is_bare = self.background is None or self.background.is_plain
        share = self.conf.prune_from if is_bare else self.background.conf.prune_from
        return max(share * self._end_iter, self._prunes_after)

    def _leveled(self) -> list[GridField]:
        """The fields whose levels are activated one after the other."""
        return self._grids if self.background is None else [*self._grids, self.background.density]

    def _schedule(self, step: int) -> None:
        conf = self.conf
        done = step / self._end_iter
        for field in self._leveled():
            field.activate(conf.first_levels, done / conf.levels_until)
        self.random_share = conf.anywhere if done >= conf.levels_until else 0.0
        self.step_size = conf.first_step + (conf.last_step - conf.first_step) * min(1.0, done / conf.steps_until)

    def _prune(self) -> None:
        raise NotImplementedError

    def _reopen(self) -> None:
        """Forget which cells are empty: a shorter schedule, resumed, was told so by a coarser field.

        No ray would reach them, so neither they nor the field there would change.
        """
        self.grid.open()

    def visibility(self, found: PackedSamples, step: float) -> Visibility:
        """Which samples, `step` apart, are visible."""
        raise NotImplementedError

    def view_samples(self, rays: Rays) -> tuple[RaySamples, int]:
        """Samples of the first rays that fit VIEW_BUDGET, and how many rays fitted; waits for the device."""
        step, jitter = self.conf.last_step, np.full((len(rays), 1), 0.5, np.float32)
        near, far = self.grid.march(rays, jitter, step, VIEW_BUDGET), None
        traversed = int(near.kept.item())
        near = replace(near, offsets=near.offsets[: traversed + 1])
        if self.background is not None:
            seen = self.visibility(near.first(max(1, int(near.offsets[-1:].item()))), step)
            first = rays.at(slice(0, traversed))
            far = self.background.place(first, jitter[:traversed], seen.transmits, None, VIEW_BUDGET)[0]
            near, traversed = _up_to(near, far.kept), int(far.kept.item())
        return self._sampled(Placed(near, far), step), traversed

    def behind(self, background_rgb: np.ndarray | None) -> np.ndarray | None:
        """The colour [3] of rays that nothing absorbs; None for black."""
        if self.background is not None:
            return self.background.sky
        return background_rgb if self._backdrop is None else self._backdrop

    def buffers(self) -> dict[str, np.ndarray]:
        """The hull, the cells, and how many levels are active."""
        behind = {} if self.background is None else self.background.buffers()
        if self._backdrop is not None:
            behind = {"backdrop": self._backdrop}
        return behind | {
            "hull": self.grid.hull,
            "cells": self.grid.cells,
            "levels": np.array([field.active for field in self._leveled()]),
            "prunes_after": np.array([self._prunes_after]),
        }

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError for others."""
        buffers = OF_EARLIER_VERSIONS | buffers
        for name, own in self.buffers().items():
            found = buffers.get(name)
            if found is None or found.dtype != own.dtype:
                raise ValueError(f"its buffer {name} is missing, or of another type than {own.dtype}")
            if found.shape != own.shape:
                raise ValueError(
                    f"its buffer {name} has {len(found)} entries along a side, the conf asks for {len(own)} "
                    f"(model.{self.samples_block}.cells)"
                )
        hull, cells, levels = (buffers[name] for name in ("hull", "cells", "levels"))
        if not hull.any() or cells.max() > SOLID or cells[~hull].any() or not self._have(levels):
            raise ValueError("its hull, cells or levels are not those of a training")
        self.grid.enclose(hull)
        self.grid.set(cells)
        if self._backdrop is not None:
            self._backdrop = buffers["backdrop"]
        self._prunes_after = int(buffers["prunes_after"][0])
        for field, active in zip(self._leveled(), levels, strict=True):
            field.active = int(active)
        if self.background is not None:
            self.background.load_buffers(buffers)

    def _have(self, levels: np.ndarray) -> bool:
        """Whether the grids have so many levels."""
        return all(1 <= active <= field.conf.levels for field, active in zip(self._leveled(), levels, strict=True))

    def _is_outside(self, points: np.ndarray) -> np.ndarray:
        """Whether points [P, 3] lie in cells outside the hull: bool [P]."""
        return ~self.grid.hull[self.grid.indices(points)]


def _up_to(found: PackedSamples, count: Var) -> PackedSamples:
    """With no samples but those of the first rays, int32 [1] of them."""
    return replace(found, offsets=jt.minimum(found.offsets, found.offsets[count]).stop_grad(), kept=count)


def _ball(cells: int) -> np.ndarray:
    """The cells whose centres lie in the unit sphere: bool [cells, cells, cells]."""
    ticks = ((np.arange(cells) + 0.5) * 2.0 / cells - 1) ** 2
    return ticks[:, None, None] + ticks[None, :, None] + ticks < 1
