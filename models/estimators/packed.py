"""Occupancy sampling for surfaces and radiance fields: packed samples in the occupied cells of a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from data.errors import UserError
from data.rays import Rays
from data.scenes.frustum import squared_radii
from data.scenes.scene import Posed, Scene
from data.scenes.sparse import near_plane
from data.scenes.visual_hull import carve_unit_sphere, masked_views
from models.config.blocks import TrainConfig
from models.estimators.base import Estimator
from models.estimators.batch import PackedBatch, Placed, started
from models.estimators.conf import SamplesConfig
from models.estimators.occupancy import OccupancyGrid, middles
from models.estimators.sampler import PackedSampler
from models.estimators.visibility import LEAST_WEIGHT, REACHED, Visibility, above
from models.fields.grids import GridField
from models.machine.backend import jt
from models.ops.march import SOLID, PackedSamples, compact, fill
from models.plan import TrainingPlan
from models.structs import RaySamples, Var

MOST_LOST = 0.02  # maximum fraction of the probe rays that may lose the object by pruning; above it the cells are kept
BACKDROP = "backdrop"  # name of a buffer
VIEW_BUDGET = 1 << 17  # maximum number of samples of an image computed at a time


class OccupancyEstimator(Estimator):
    """Packed samples of rays, the occupancy grid, the schedules of step size and grid levels, and the pruning of cells.

    A subclass decides which cells are empty (`prune`) and which samples are visible (`visibility`).
    """

    skips_hidden = False  # see `sampler.SampledEstimator`
    most_beyond = 0

    def __init__(
        self,
        conf: SamplesConfig,
        train: TrainConfig,
        plan: TrainingPlan,
        hull_margin: float,
        grids: Sequence[GridField],
    ) -> None:
        """`hull_margin`: dilation of the masks' visual hull; `grids`: fields with levels to activate."""
        self.conf, self.plan = conf, plan
        self._train, self._hull_margin, self._grids = train, hull_margin, list(grids)
        self.grid = OccupancyGrid(squared_radii(conf.cells) < 1)  # the cells whose centres are in the unit sphere
        self.step_size, self.random_share = 0.0, 0.0
        self.least_step = 0.0  # lower bound of the step size, updated with the cells
        self.points: np.ndarray | None = None  # SfM points of the next batch
        self.most_compared: int | None = None
        self._sampler: PackedSampler | None = None
        self.prunes_after = 0  # no pruning before this step, after a collapse
        self._backdrop: np.ndarray | None = None  # [3], colour of the backdrop from which the masks were derived

    def see(self, views: Posed) -> None:
        """See `Estimator.see`."""
        centres = views.c2w[:, :3, 3]
        self.grid.fit(centres, near_plane(centres, views.points))

    def fit(self, scene: Scene) -> None:
        """Carve the visual hull of the masks, if the plan uses them; raises UserError if it is empty."""
        masks = scene.masks if self.plan.uses_masks else None
        if masks is not None:
            views = masked_views(scene.cameras, masks)
            hull = carve_unit_sphere(views, self.conf.cells, self._hull_margin)
            if not hull.any():
                raise UserError(
                    f"{scene.name}: the visual hull of the masks is empty in the region of interest; check the "
                    "masks and the cameras with --mode inspect, or train without masks (train.mask_weight = 0)"
                )
            self.grid.enclose(hull)
            self._backdrop = scene.backdrop
        self.see(scene)

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PackedSampler:
        """A sampler of pixels whose rays may cross the hull, for the scene passed to `fit`."""
        self._sampler = PackedSampler(scene, self, batch_size, self.conf.samples, generator)
        self._schedule(0)
        return self._sampler

    def sample(self, batch: PackedBatch, *unused: object) -> RaySamples:
        """The samples of a batch, computed on the device."""
        return self._sampled(batch.placed, float(batch.step[0]))

    def _sampled(self, placed: Placed, step: float) -> RaySamples:
        """Samples at distance `step`."""
        near = placed[0]
        deltas = jt.full((near.rays.shape[0], 1), step)
        return RaySamples(near.points, near.directions, deltas, near.offsets, near.depths)

    def place(self, batch: PackedBatch) -> Placed:
        """The visible samples of the first rays of a batch that fit the sample budget; does not wait for the device."""
        samples, walked, *_ = batch.sizes.tolist()
        with jt.no_grad():
            found = self.grid.march(batch.rays, batch.jitter, float(batch.step[0]), walked)
            near, far, asked = self._visible(batch, found)
            return started(fill(near, jt.array(batch.others), samples), far, found.offsets, asked)

    def _visible(
        self, batch: PackedBatch, found: PackedSamples
    ) -> tuple[PackedSamples, PackedSamples | None, Var | None]:
        """The visible ones of the samples found in the region, and those beyond it with their offsets (`Placed`)."""
        if not self.skips_hidden:
            return found, None, None
        weights = self.visibility(found, float(batch.step[0]))[1]
        return compact(found, above(weights, self.least_weight), int(batch.sizes[2])), None, None

    def before_step(self, step: int) -> None:
        """Activate levels, set the step size and, every `prune_every` steps, update the cells and `least_step`."""
        is_due = step > 0 and step % self.conf.prune_every == 0
        if is_due:
            self.least_step = self.resolving_step()
        self._schedule(step)
        if step < self.first_pruning:
            if not self.grid.is_open:
                self._reopen()
        elif is_due:
            self.prune()
            if self._loses_masks():
                self.grid.open()

    def _loses_masks(self) -> bool:
        """Whether too many rays of the masks cross the hull but no occupied cell."""
        return self.plan.uses_masks and self._sampler is not None and self._sampler.lost_share() > MOST_LOST

    def after_collapse(self, step: int) -> str:
        """Disable pruning before this step; returns the end of a sentence about it."""
        self.prunes_after = step
        return f", and no cells are pruned before step {step}"

    @property
    def first_pruning(self) -> float:
        """The step at which pruning begins."""
        return max(self.plan.prune_from.value * self._train.end_iter, self.prunes_after)

    def _leveled(self) -> list[GridField]:
        """The fields whose levels are activated during training."""
        return self._grids

    def _schedule(self, step: int) -> None:
        conf = self.conf
        done = step / self._train.end_iter
        for field in self._leveled():
            field.activate(conf.first_levels, done / conf.levels_until)
        self.random_share = conf.anywhere if done >= conf.levels_until else 0.0
        scheduled = conf.first_step + (conf.last_step - conf.first_step) * min(1.0, done / conf.steps_until)
        self.step_size = max(scheduled, self.least_step)

    def resolving_step(self) -> float:
        """The step size that resolves the current field, used for images."""
        return self.conf.last_step

    def prune(self) -> None:
        """Update the cells by the values of the field."""
        raise NotImplementedError

    def _reopen(self) -> None:
        """Mark all cells as occupied again, when a finished shorter training is continued.

        The cells were pruned with a coarser field. No ray would reach the empty ones, so neither they nor the field
        there would change.
        """
        self.grid.open()

    def visibility(self, found: PackedSamples, step: float) -> Visibility:
        """The weights of samples at distance `step`, and which rays see what is behind the region."""
        raise NotImplementedError

    @property
    def least_weight(self) -> float:
        """The weight above which a sample is visible in training."""
        return REACHED

    def march_view(self, rays: Rays) -> PackedSamples:
        """All samples of the first rays of an image that fit VIEW_BUDGET, at least one row; waits for the device."""
        found = self.grid.march(rays, middles(len(rays)), self.resolving_step(), VIEW_BUDGET)
        traversed, used = int(found.kept.item()), int(found.offsets[-1:].item())
        return replace(found.first(max(1, used)), offsets=found.offsets[: traversed + 1])

    def view_samples(self, rays: Rays, found: PackedSamples, seen: Visibility) -> tuple[RaySamples, np.ndarray, int]:
        """The visible ones of the samples that `march_view` found, with the background.

        Returns them, their rows among all samples, and the number of their rays, the first ones. Waits for the device.
        """
        is_kept = above(seen[1], LEAST_WEIGHT)
        rows = np.flatnonzero(is_kept.numpy())
        rows = rows if len(rows) else np.zeros(1, rows.dtype)  # operations need a row: a sample of no ray
        placed, traversed = self._shown(compact(found, is_kept, len(rows)), rays, seen)
        return self._sampled(placed, self.resolving_step()), rows, traversed

    def _shown(self, near: PackedSamples, rays: Rays, seen: Visibility) -> tuple[Placed, int]:
        """The samples of an image, those beyond the region included, and the number of their rays."""
        del rays, seen
        return (near, None, None), near.offsets.shape[0] - 1

    def behind(self, background_rgb: np.ndarray | None) -> np.ndarray | None:
        """The background colour [3] of rays; None for black."""
        return background_rgb if self._backdrop is None else self._backdrop

    def buffers(self) -> dict[str, np.ndarray]:
        """The hull, the cells and the numbers of active levels."""
        behind = {} if self._backdrop is None else {BACKDROP: self._backdrop}
        return behind | {
            "hull": self.grid.hull,
            "cells": self.grid.cells,
            "levels": np.array([field.active for field in self._leveled()]),
            "prunes_after": np.array([self.prunes_after]),
            "least_step": np.array([self.least_step]),
        }

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        expected = self.buffers() | ({BACKDROP: np.zeros(3, np.float32)} if BACKDROP in buffers else {})
        for name, own in expected.items():
            found = buffers.get(name)
            if found is None or found.dtype != own.dtype:
                raise ValueError(f"its buffer {name} is missing, or of another type than {own.dtype}")
            if found.shape != own.shape:
                block = "open" if name.startswith("background") else self.conf.block
                raise ValueError(
                    f"its buffer {name} has {len(found)} entries along a side, the conf asks for {len(own)} "
                    f"(model.{block}.cells)"
                )
        hull, cells, levels = (buffers[name] for name in ("hull", "cells", "levels"))
        if not hull.any() or cells.max() > SOLID or cells[~hull].any() or not self._have(levels):
            raise ValueError("its hull, cells or levels are not those of a training")
        self.grid.enclose(hull)
        self.grid.set(cells)
        self._backdrop = buffers.get(BACKDROP)
        self.prunes_after, self.least_step = int(buffers["prunes_after"][0]), float(buffers["least_step"][0])
        for field, active in zip(self._leveled(), levels, strict=True):
            field.active = int(active)

    def _have(self, levels: np.ndarray) -> bool:
        """Whether each field has at least this number of levels."""
        return all(1 <= active <= field.conf.levels for field, active in zip(self._leveled(), levels, strict=True))

    def _is_outside(self, points: np.ndarray) -> np.ndarray:
        """Whether points [P, 3] are in cells outside the hull: bool [P]."""
        return ~self.grid.hull[self.grid.indices(points)]
