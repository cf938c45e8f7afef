"""Packed samples: those in the occupied cells of the region, along random rays of all images.

`PackedBatches` draws pixels. `PackedEstimator` marches along their rays, removes hidden samples, and owns what this
depends on: cells, their pruning (`CellPruner`), schedule and sample budget. Its subclasses know what hides and what is
empty. On a GPU, pixels are drawn there, if the photographs fit its memory.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from data.errors import UserError
from data.rays import PixelBatch, Rays
from data.scenes.frustum import squared_radii
from data.scenes.sampler import HostPixels, damage_named, require_views, restore_generator, windows_of
from data.scenes.scene import Posed, Scene
from data.scenes.visual_hull import carve_unit_sphere, masked_views
from models.estimators.base import Estimator, require_alike
from models.estimators.budget import COUNTED, HITS, MOST_EMPTY, SampleBudget, Sizes, estimates_of
from models.estimators.conf import POINTS_SHARE
from models.estimators.occupancy import OccupancyGrid, centred_jitter
from models.estimators.schedule import CellPruner, SamplingSchedule
from models.fields.protocol import Leveled
from models.machine import backend
from models.machine.backend import jt
from models.ops.draw import Draw, Photographs, draw_pixels
from models.ops.later import Later
from models.ops.march import SOLID, PackedSamples, fill
from models.plan import TrainingPlan
from models.structs import Array, RaySamples, SampleRequest, Var

BACKDROP = "backdrop"  # name of a buffer
VIEW_BUDGET = 1 << 17  # maximum number of samples of an image computed at a time
SPARE_POINTS = 1 / 16  # fraction of the samples: additional points, used if rays have few samples


@dataclass(frozen=True)
class PackedBatch(PixelBatch):
    """R rays with their pixels and samples. Values of rays are arrays, or Vars if they were drawn on the device."""

    # The S samples of the region. Those of no ray are SfM points, then random points of the hull.
    region: PackedSamples
    background: PackedSamples | None  # those of the background, if there is one
    step_size: float  # length of each interval
    anchors: int | None = None  # number of SfM points; None if they are not used
    every: int | None = None  # patches are compared for one ray in so many; None: no patches

    def part(self, start: int, stop: int) -> PackedBatch:
        """The rays start to stop - 1 with their samples; the last ray also gets the samples of no ray."""
        stop = min(stop, len(self))
        is_last = stop == len(self)
        region = _part(self.region, start, stop, is_last)
        background = self.background and _part(self.background, start, stop, is_last)
        anchors = self.anchors if self.anchors is None or is_last else 0
        return replace(self, **vars(super().part(start, stop)), region=region, background=background, anchors=anchors)

    def rays_of_samples(self) -> tuple[Var, Var]:
        """The ray of each sample, int32 [S], and the offsets, int32 [R + 1]."""
        return self.region.rays, self.region.offsets

    def is_anchor(self) -> Var:
        """Whether each sample is an SfM point, float32 [S, 1]."""
        behind = jt.index(self.region.depths.shape, dim=0) - self.region.offsets[-1:].unsqueeze(1)
        return ((behind >= 0) & (behind < (self.anchors or 0))).float32()

    def words(self) -> dict[str, np.ndarray]:
        """The arrays by descriptive names, for messages."""
        named = {
            "the rays (the cameras)": np.hstack([np.asarray(value) for value in vars(self.rays).values()]),
            "the colours of the photographs": np.asarray(self.rgb),
        }
        return named if self.mask is None else named | {"the masks": np.asarray(self.mask)}


class Visible(NamedTuple):
    """The visible samples of rays, and of the background the offsets before hidden samples were removed."""

    region: PackedSamples
    background: PackedSamples | None = None
    background_traversed: Var | None = None


class PackedBatches:
    """An endless sequence of batches: random pixels of all images, as many as fit the estimator's sample budget."""

    def __init__(
        self,
        scene: Scene,
        windows: np.ndarray,
        estimator: PackedEstimator,
        most_rays: int,
        generator: np.random.Generator,
    ) -> None:
        """`windows`: of the pixels of each image that may be drawn, see `windows_of`."""
        self._scene, self._estimator, self._most_rays, self._generator = scene, estimator, most_rays, generator
        self.pixels = pixels_of(scene, windows)

    def next(self) -> PackedBatch:
        """The next batch; raises UserError if the last MOST_EMPTY batches had no samples, so no image sees the hull."""
        rays, sizes = self._estimator.next_sizes(self._most_rays)
        if self._estimator.budget.empty_batches >= MOST_EMPTY:
            raise UserError(
                f"{self._scene.name}: no photograph sees the region where the object may be; check the cameras, "
                "the masks and the region of interest"
            )
        pixels, jitter = self.pixels.draw(self._generator, rays)
        return self._estimator.march_batch(pixels, jitter, sizes, self._generator)

    def state(self) -> dict[str, Any]:
        """The state that determines the next batches besides the buffers of the estimator, as JSON values."""
        own = {"views": self._scene.n_views, "generator": self._generator.bit_generator.state}
        return self._estimator.budget.state() | own

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`; raises UserError, with nothing changed, if it does not fit."""
        with damage_named():
            estimates = estimates_of(state)
            views, generator = int(state["views"]), dict(state["generator"])
        require_views(views, self._scene)
        restore_generator(self._generator, generator)
        budget = self._estimator.budget
        budget.per_ray, budget.counts = estimates


class PackedEstimator(Estimator):
    """Samples the occupied cells of the region."""

    has_hidden = True  # whether `visible` removes samples

    def __init__(
        self, schedule: SamplingSchedule, plan: TrainingPlan, leveled: Sequence[Leveled], background_samples: int = 0
    ) -> None:
        """`leveled`: fields whose levels are activated; `background_samples`: maximum number, 0 without a
        background.
        """
        self.schedule, self.plan, self.conf = schedule, plan, schedule.conf
        self._leveled = [field for field in leveled if field.levels]
        self.grid = OccupancyGrid(squared_radii(self.conf.cells) < 1)  # whose centres are in the unit sphere
        self.pruner = CellPruner(self.grid, schedule, plan.uses_masks)
        self.budget = SampleBudget(self.conf.samples, background_samples, self.has_hidden, self.grid.open)
        self.step = 0
        self.least_step_size = 0.0  # lower bound of the step size, updated with the cells
        self.points: np.ndarray | None = None  # SfM points of the next batch
        self.most_compared: int | None = None  # rays of a batch whose patches are compared; None: no comparison
        self.backdrop: np.ndarray | None = None  # [3], of a plain background, or that masks were derived from

    # what a subclass defines

    def initialise(self, scene: Scene) -> None:
        """Initialise a training from a scene."""
        raise NotImplementedError

    def visible(self, traversed: PackedSamples, rays: Rays, jitter: Array, step_size: float, sizes: Sizes) -> Visible:
        """The visible ones of the samples traversed along rays; by default all are visible."""
        return Visible(traversed)

    def prune(self) -> None:
        """Update the cells from the field."""
        raise NotImplementedError

    def resolving_step_size(self) -> float:
        """The step size that resolves the current field, used for images, and from the next update of the cells on the
        least one of training.
        """
        return self.conf.last_step

    # the batch

    @property
    def step_size(self) -> float:
        """The distance of samples along a ray at this step."""
        return max(self.schedule.step_size(self.step), self.least_step_size)

    @property
    def random_share(self) -> float:
        """The least fraction of samples that are random points at this step."""
        return self.schedule.random_share(self.step)

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PackedBatches:
        """Batches of rays that may cross the hull, of all pixels with a background; initialises a training."""
        self.initialise(scene)
        is_open = self.budget.background_samples > 0
        windows = windows_of(scene, None if is_open else self.grid.centres(), self.grid.side)
        self.pruner.draw_probes(scene, windows, is_open)
        self._activate(0)
        return PackedBatches(scene, windows, self, batch_size, generator)

    def next_sizes(self, most_rays: int) -> tuple[int, Sizes]:
        """Of the next batch: the number of rays, and the numbers of rows."""
        self.budget.update()
        share = self.random_share if self.points is None else max(self.random_share, POINTS_SHARE)
        return self.budget.next_sizes(most_rays, int(share * self.conf.samples), self.step_size)

    def march_batch(
        self, pixels: PixelBatch, jitter: Array, sizes: Sizes, generator: np.random.Generator
    ) -> PackedBatch:
        """The batch of these pixels, with the samples of the first rays that fit the budget; their computation is
        started.
        """
        every = None
        if self.most_compared is not None:
            every = max(1, math.ceil(len(pixels) * self.budget.per_ray[HITS] / self.most_compared))
        others, anchors = self._others(sizes.free, generator)
        step_size = float(np.float32(self.step_size))
        with jt.no_grad():
            traversed = self.grid.march(pixels.rays, jitter, step_size, sizes.traversed)
            visible = self.visible(traversed, pixels.rays, jitter, step_size, sizes)
            region, background = fill(visible.region, jt.array(others), sizes.samples), visible.background
        offsets, ends = region.offsets, [region.offsets, traversed.offsets]
        if background is not None and visible.background_traversed is not None:
            offsets = offsets + background.offsets
            ends += [background.offsets, visible.background_traversed]
        jt.sync([*(value for one in (region, background) if one is not None for value in vars(one).values()), *ends])
        self._count(region, offsets, ends)
        mask = pixels.mask if self.plan.uses_masks else None
        return PackedBatch(pixels.rays, pixels.rgb, mask, pixels.view, region, background, step_size, anchors, every)

    def _count(self, region: PackedSamples, offsets: Var, ends: Sequence[Var]) -> None:
        """Give the budget the counts of a batch, on the CPU as numbers: R + 1 `offsets` of all samples, and `ends` of
        each kind.
        """
        if not self.budget.uncounted:
            rays, offsets = int(region.kept.item()), offsets.numpy()
            values = rays, int((offsets[1:] > offsets[:-1]).sum()), *(int(one.numpy()[rays]) for one in ends)
            self.budget.counts.append(dict(zip(COUNTED, values, strict=False)))
            return
        hits = (offsets[1:] > offsets[:-1]).int32().sum()
        self.budget.counts.append(
            Later(jt.concat([region.kept, hits, *(one[region.kept] for one in ends)]).stop_grad())
        )

    def _others(self, free: int, generator: np.random.Generator) -> tuple[np.ndarray, int | None]:
        """Points [P, 3] that belong to no ray, SfM points first, and the number of SfM points.

        `free` is the minimum number of samples that are available for them; if more are available, points are repeated.
        """
        count = free + int(SPARE_POINTS * self.conf.samples)
        if self.points is None:
            return self.grid.random_points(count, generator), None
        some = generator.integers(len(self.points), size=min(free, int(POINTS_SHARE * self.conf.samples)))
        others = self.grid.random_points(count - len(some), generator)
        return np.concatenate([self.points[some], others]), len(some)

    def sample(self, request: SampleRequest) -> RaySamples:
        """The samples of a batch, which was made by `march_batch`."""
        assert isinstance(request.batch, PackedBatch)
        return samples_at(request.batch.region, request.batch.step_size)

    def march_view(self, rays: Rays, step_size: float) -> PackedSamples:
        """All samples of the first rays of an image that fit VIEW_BUDGET, at least one row; waits for the device."""
        traversed = self.grid.march(rays, centred_jitter(len(rays)), step_size, VIEW_BUDGET)
        count, used = int(traversed.kept.item()), int(traversed.offsets[-1:].item())
        return replace(traversed.first(max(1, used)), offsets=traversed.offsets[: count + 1])

    def behind(self, background_rgb: np.ndarray | None) -> np.ndarray | None:
        """The background colour [3] of rays; None for black."""
        return background_rgb if self.backdrop is None else self.backdrop

    # cells

    def carve(self, scene: Scene, margin: float) -> None:
        """The visual hull of the masks, if the plan uses them, dilated by a margin; raises UserError if it is empty."""
        if not self.plan.uses_masks or scene.masks is None:
            return
        hull = carve_unit_sphere(masked_views(scene.cameras, scene.masks), self.conf.cells, margin)
        if not hull.any():
            raise UserError(
                f"{scene.name}: the visual hull of the masks is empty in the region of interest; check the "
                "masks and the cameras with --mode inspect, or train without masks (train.mask_weight = 0)"
            )
        self.grid.enclose(hull)
        self.backdrop = scene.backdrop

    def before_step(self, step: int) -> None:
        """Activate levels and, every `prune_every` steps, update the cells and `least_step_size`."""
        if self.schedule.updates_cells(step):
            self.least_step_size = self.resolving_step_size()
        self._activate(step)
        self.pruner.before_step(step, self.prune)

    def _activate(self, step: int) -> None:
        """Activate the levels of a step."""
        self.step = step
        for field in self._leveled:
            field.activate(self.conf.first_levels, self.schedule.level_progress(step))

    def after_collapse(self, step: int) -> str:
        """Disable pruning before this step; returns the end of a sentence about it."""
        self.pruner.postponed_to = step
        return f", and no cells are pruned before step {step}"

    # state

    def see(self, views: Posed) -> None:
        """Take the cameras of a scene."""
        self.grid.see(views)

    def buffers(self) -> dict[str, np.ndarray]:
        """The hull, the cells, the numbers of active levels, the backdrop of derived masks."""
        derived = {} if self.backdrop is None or not self.plan.uses_masks else {BACKDROP: self.backdrop}
        return derived | {
            "hull": self.grid.hull,
            "cells": self.grid.cells,
            "levels": np.array([field.active for field in self._leveled]),
            "prunes_after": np.array([self.pruner.postponed_to]),
            "least_step": np.array([self.least_step_size]),
        }

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        require_alike(PackedEstimator.buffers(self), buffers, f"model.{self.conf.block}.cells")
        hull, cells, levels = (buffers[name] for name in ("hull", "cells", "levels"))
        exist = all(1 <= active <= field.levels for field, active in zip(self._leveled, levels, strict=True))
        if not hull.any() or cells.max() > SOLID or cells[~hull].any() or not exist:
            raise ValueError("its hull, cells or levels are not those of a training")
        self.grid.enclose(hull)
        self.grid.set(cells)
        self.backdrop = buffers.get(BACKDROP, self.backdrop)
        self.pruner.postponed_to, self.least_step_size = (
            int(buffers["prunes_after"][0]),
            float(buffers["least_step"][0]),
        )
        for field, active in zip(self._leveled, levels, strict=True):
            field.active = int(active)


def samples_at(region: PackedSamples, step_size: float) -> RaySamples:
    """Samples of the region at distance `step_size`."""
    deltas = jt.full((region.rays.shape[0], 1), step_size)
    return RaySamples(region.points, region.directions, deltas, region.offsets, region.depths)


def _part(one: PackedSamples, start: int, stop: int, is_last: bool) -> PackedSamples:
    """The samples of the rays start to stop - 1, the last ray with those of no ray; waits for the device."""
    values = {name: value.numpy() for name, value in vars(one).items()}
    offsets = values.pop("offsets")
    rows = slice(offsets[start], None if is_last else offsets[stop])
    cut = {name: value[rows] for name, value in values.items() if name != "kept"}
    cut |= {"offsets": offsets[start : stop + 1] - offsets[start], "rays": np.maximum(cut["rays"] - start, 0)}
    return PackedSamples(kept=one.kept, **{name: jt.array(value).stop_grad() for name, value in cut.items()})


MOST_OF_MEMORY = 0.25  # of the free memory of a GPU for the photographs
MOST_PIXELS = 2**31  # of all photographs: their places are int32


class DevicePixels:
    """Pixels drawn on the device, uniform in the windows of all views."""

    def __init__(self, scene: Scene, windows: np.ndarray) -> None:
        """The same as `HostPixels`, for photographs of 8 bits."""
        sizes = np.array([scene.size(view) for view in range(scene.n_views)])
        starts = np.cumsum([0, *sizes.prod(axis=1)[:-1]])
        windows = np.column_stack([starts, sizes[:, 0], windows[:, :2], windows[:, 2:] - windows[:, :2]])
        shares = np.cumsum(windows[:, 4:].prod(axis=1, dtype=np.float64))
        to_world = scene.c2w[:, :3, :3] @ np.linalg.inv(scene.intrinsics)
        cameras = np.column_stack([to_world.reshape(-1, 9), scene.c2w[:, :3, 3]])
        masks = None if scene.masks is None else jt.array(np.concatenate([mask.reshape(-1) for mask in scene.masks]))
        self._photographs = Photographs(
            jt.array(windows.astype(np.int32)),
            jt.array(shares / shares[-1], dtype="float64"),
            jt.array(cameras, dtype="float64"),
            jt.array(np.concatenate([image.reshape(-1, 3) for image in scene.images])),
            masks,
        )
        jt.sync([value for value in vars(self._photographs).values() if value is not None])

    def draw(self, generator: np.random.Generator, count: int) -> tuple[PixelBatch, Var]:
        """`count` pixels and the jitter of their rays, as Vars, sorted by view."""
        (first, second), turn = generator.integers(2**31, size=2).tolist(), np.float64(generator.random())
        masked = int(self._photographs.masks is not None)
        return draw_pixels(self._photographs, Draw(count, first, second, turn, masked))


def pixels_of(scene: Scene, windows: np.ndarray) -> HostPixels | DevicePixels:
    """On a GPU, pixels that are drawn there, if the photographs fit its memory."""
    if backend.device_info().name != "cuda":
        return HostPixels(scene, windows)
    images = [*scene.images, *(scene.masks or ())]
    needed, free = sum(image.nbytes for image in images), backend.device_free_bytes()
    pixels = sum(image.shape[0] * image.shape[1] for image in scene.images)
    if needed <= MOST_OF_MEMORY * free and pixels < MOST_PIXELS and all(image.dtype == np.uint8 for image in images):
        return DevicePixels(scene, windows)
    logging.getLogger(__name__).warning(
        f"the photographs ({needed / 1e9:.3g} GB) stay in main memory, where batches are drawn more slowly: the GPU "
        f"takes {MOST_OF_MEMORY * free / 1e9:.3g} GB with 8 bits per channel; dataset.downscale reduces them"
    )
    return HostPixels(scene, windows)
