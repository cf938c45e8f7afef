"""What estimators of packed samples have in common: the occupied cells of a region and the schedules of sampling it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from data.errors import UserError
from data.rays import Rays
from data.scenes.frustum import squared_radii
from data.scenes.scene import Posed, Scene
from data.scenes.visual_hull import carve_unit_sphere, masked_views
from models.config.blocks import TrainConfig
from models.estimators.base import Estimator, Part, require_alike
from models.estimators.conf import SamplesConfig
from models.estimators.occupancy import OccupancyGrid, middles
from models.fields.grids import GridField
from models.machine.backend import jt
from models.ops.march import SOLID, PackedSamples, compact
from models.ops.volrend import packed_weights, section_alpha
from models.plan import TrainingPlan
from models.structs import RaySamples, Var

MOST_LOST = 0.02  # maximum fraction of the probe rays that may lose the object by pruning; above it the cells are kept
BACKDROP = "backdrop"  # name of a buffer
# NaN counts as visible below, so that it reaches the loss and the step is skipped.
LEAST_TRANSMITTANCE = 1e-3  # below it, nothing behind the region or behind samples of the background is visible
# Minimum weight of a visible sample. In training, with 0 DTU scan 24 has 1 dB less, and with 3e-4 missing parts of the
# surface do not grow; in images, where the weights are exact, no pixel of a trained scene changed by a tenth of 1/255.
LEAST_WEIGHT = 3e-5
REACHED, ALL = 0.0, -1.0  # in place of LEAST_WEIGHT: samples with transmittance; all samples
NO_ANNEALING = 1.0  # the ratio of volrend.annealed_cos: the increase of inv_s replaces the annealing
OPAQUE = 0.5  # a ray with a higher opacity in the region hits a surface
LEAST_ALPHA = 1e-7  # lower bound of alpha, so that each sample with transmittance has a weight
VIEW_BUDGET = 1 << 17  # maximum number of samples of an image computed at a time

Shown = tuple[RaySamples, np.ndarray, int]  # visible samples of an image, their rows, and the number of their rays


class Region(Part):
    """The occupancy grid of the region of interest, and the schedules of step size, grid levels and pruning."""

    def __init__(self, conf: SamplesConfig, train: TrainConfig, plan: TrainingPlan, grids: Sequence[GridField]) -> None:
        """`grids`: fields with levels to activate."""
        self.conf, self.train, self.plan, self._grids = conf, train, plan, grids
        self.grid = OccupancyGrid(squared_radii(conf.cells) < 1)  # the cells whose centres are in the unit sphere
        self.step_size, self.random_share = 0.0, 0.0
        self.least_step = 0.0  # lower bound of the step size, updated with the cells
        self.points: np.ndarray | None = None  # SfM points of the next batch
        self.most_compared: int | None = None  # rays of a batch whose patches are compared; None: no comparison
        self.beyond = 0  # maximum number of samples of the background in a batch; 0 without one
        self.probes: Rays | None = None  # rays by which pruning is tested
        self.prunes_after = 0  # no pruning before this step, after a collapse
        self.backdrop: np.ndarray | None = None  # [3], of a plain background, or that masks were derived from

    def see(self, views: Posed) -> None:
        """See `Part.see`."""
        self.grid.see(views)

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

    @property
    def first_pruning(self) -> float:
        """The step at which pruning begins."""
        return max(self.plan.prune_from.value * self.train.end_iter, self.prunes_after)

    def is_due(self, step: int) -> bool:
        """Whether cells are updated before this step."""
        return step > 0 and step % self.conf.prune_every == 0

    def before_step(self, step: int, prune: Callable[[], None], resolving_step: Callable[[], float]) -> None:
        """Activate levels, set the step size and, every `prune_every` steps, update the cells and `least_step`.

        Before pruning begins, all cells are occupied: those of a finished shorter training that is continued were
        pruned with a coarser field, and no ray would reach the empty ones to change them. They also are if pruning
        loses too many rays of the masks.
        """
        is_due = self.is_due(step)
        if is_due:
            self.least_step = resolving_step()
        self.schedule(step)
        if step < self.first_pruning:
            if not self.grid.is_open:
                self.grid.open()
        elif is_due:
            prune()
            if self.plan.uses_masks and self.lost_share() > MOST_LOST:
                self.grid.open()

    def lost_share(self) -> float:
        """The fraction of the probe rays, which crossed the hull, that cross no occupied cell."""
        found = self.grid.crosses(self.probes) if self.probes else np.zeros(0)
        return 1.0 - float(found.mean()) if len(found) else 0.0

    def schedule(self, step: int) -> None:
        """Activate levels, and set the step size and the share of random samples."""
        conf, done = self.conf, step / self.train.end_iter
        for field in self._grids:
            field.activate(conf.first_levels, done / conf.levels_until)
        self.random_share = conf.anywhere if done >= conf.levels_until else 0.0
        scheduled = conf.first_step + (conf.last_step - conf.first_step) * min(1.0, done / conf.steps_until)
        self.step_size = max(scheduled, self.least_step)

    def march_view(self, rays: Rays, step: float) -> PackedSamples:
        """All samples of the first rays of an image that fit VIEW_BUDGET, at least one row; waits for the device."""
        found = self.grid.march(rays, middles(len(rays)), step, VIEW_BUDGET)
        traversed, used = int(found.kept.item()), int(found.offsets[-1:].item())
        return replace(found.first(max(1, used)), offsets=found.offsets[: traversed + 1])

    def buffers(self) -> dict[str, np.ndarray]:
        """The hull, the cells, the numbers of active levels, the backdrop of derived masks."""
        derived = {} if self.backdrop is None or not self.plan.uses_masks else {BACKDROP: self.backdrop}
        return derived | {
            "hull": self.grid.hull,
            "cells": self.grid.cells,
            "levels": np.array([field.active for field in self._grids]),
            "prunes_after": np.array([self.prunes_after]),
            "least_step": np.array([self.least_step]),
        }

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        require_alike(self.buffers(), buffers, f"model.{self.conf.block}.cells")
        hull, cells, levels = (buffers[name] for name in ("hull", "cells", "levels"))
        have = all(1 <= active <= field.conf.levels for field, active in zip(self._grids, levels, strict=True))
        if not hull.any() or cells.max() > SOLID or cells[~hull].any() or not have:
            raise ValueError("its hull, cells or levels are not those of a training")
        self.grid.enclose(hull)
        self.grid.set(cells)
        self.backdrop = buffers.get(BACKDROP, self.backdrop)
        self.prunes_after, self.least_step = int(buffers["prunes_after"][0]), float(buffers["least_step"][0])
        for field, active in zip(self._grids, levels, strict=True):
            field.active = int(active)


class PackedEstimator(Estimator):
    """An estimator that samples the occupied cells of a region."""

    def __init__(self, region: Region, *others: Part) -> None:
        self.region, self.parts = region, (region, *others)

    def after_collapse(self, step: int) -> str:
        """Disable pruning before this step; returns the end of a sentence about it."""
        self.region.prunes_after = step
        return f", and no cells are pruned before step {step}"

    def behind(self, background_rgb: np.ndarray | None) -> np.ndarray | None:
        """The background colour [3] of rays; None for black."""
        return background_rgb if self.region.backdrop is None else self.region.backdrop


def samples_at(near: PackedSamples, step: float) -> RaySamples:
    """Samples of the region at distance `step`."""
    deltas = jt.full((near.rays.shape[0], 1), step)
    return RaySamples(near.points, near.directions, deltas, near.offsets, near.depths)


def visible_of(found: PackedSamples, weights: Var) -> tuple[PackedSamples, np.ndarray]:
    """Those of an image's samples whose weight is not negligible, and their rows; waits for the device."""
    is_kept = above(weights, LEAST_WEIGHT)
    rows = np.flatnonzero(is_kept.numpy())
    rows = rows if len(rows) else np.zeros(1, rows.dtype)  # operations need a row: a sample of no ray
    return compact(found, is_kept, len(rows)), rows


def above(weights: Var, least: float) -> Var:
    """Which samples have a weight above `least`: bool [S]."""
    return (weights <= least).logical_not()[:, 0]


def density_weights(alpha: Var, offsets: Var) -> Var:
    """Weights [S, 1] of samples with opacities [S, 1]; offsets int32 [R + 1]. Those with transmittance have one."""
    return packed_weights(_floored(alpha), offsets)[0]


def transmitted(alpha: Var, offsets: Var) -> Var:
    """Which samples with opacities [S, 1] are reached with a transmittance above LEAST_TRANSMITTANCE: bool [S]."""
    floored = _floored(alpha)
    return (packed_weights(floored, offsets)[0] <= LEAST_TRANSMITTANCE * floored).logical_not()[:, 0]


def _floored(alpha: Var) -> Var:
    return jt.ternary(alpha < LEAST_ALPHA, jt.full_like(alpha, LEAST_ALPHA), alpha)


def passes(transmittance: Var) -> Var:
    """Whether rays with this transmittance of the region [R, 1] see what is behind it: bool [R]."""
    return (transmittance <= LEAST_TRANSMITTANCE).logical_not()[:, 0]


def lost_share(before: np.ndarray, after: np.ndarray) -> float:
    """The fraction of the previously opaque rays [R] that lose half of their opacity; 0 if there are none."""
    is_opaque = before > OPAQUE
    return float((after[is_opaque] < 0.5 * before[is_opaque]).mean()) if is_opaque.any() else 0.0


def surface_weights(found: PackedSamples, sdf: Var, inv_s: Var, step: float) -> tuple[Var, Var]:
    """Approximate weights [S, 1] of samples at distance `step` with these signed distances [S, 1], and the
    transmittance of their rays [R, 1]; inv_s: [1].

    The slope of the distance at a sample is the mean of those to both neighbours on its ray.
    """
    number, one = jt.index(sdf.shape, dim=0), jt.full((1, 1), -1.0)
    slopes = (sdf[1:] - sdf[:-1]) / jt.maximum(found.depths[1:] - found.depths[:-1], step)
    after, before = jt.concat([slopes, one], dim=0), jt.concat([one, slopes], dim=0)
    is_first = number == found.offsets[found.rays].unsqueeze(1)
    is_last = number + 1 == found.offsets[found.rays + 1].unsqueeze(1)
    # At both ends of a ray the one difference there is; of a single sample -1, perpendicular to the surface.
    after = jt.ternary(is_last, jt.ternary(is_first, jt.full_like(before, -1.0), before), after)
    cos = (0.5 * (jt.ternary(is_first, after, before) + after)).clamp(-1.0, 1.0)
    alpha = section_alpha(sdf, cos, jt.full_like(sdf, step), inv_s, NO_ANNEALING)
    return packed_weights(alpha, found.offsets)
