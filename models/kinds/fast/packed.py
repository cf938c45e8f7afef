"""What the kinds on grids share: batches of packed samples, the cells they lie in, pictures, what is saved of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data.errors import UserError
from data.rays import Rays
from data.roi.frustum import Cameras
from data.roi.visual_hull import carve_unit_sphere, masked_views
from data.scenes.scene import Scene
from models.config.blocks import TrainConfig
from models.fields.grid_field import GridField
from models.kinds.fast.batch import PackedBatch, PackedSampler
from models.kinds.fast.conf import SamplesConfig
from models.kinds.protocol import Moment, PlainModel
from models.machine.backend import jt
from models.ops.march import SOLID
from models.ops.packed import packed_sum
from models.rendering.occupancy import Occupancy
from models.rendering.sections import SEEN_OPACITY
from models.structs import RayView, Var

MOST_LOST = 0.02  # of the rays of the masks: where a field loses more, its cells are not believed
VIEW_BUDGET = 1 << 17  # samples of a picture that are computed at a time


@dataclass(frozen=True)
class PackedView:
    """What a kind makes of S samples of R rays."""

    rgb: Var  # [R, 3], before black
    left: Var  # [R, 1], the light that passes
    weights: Var  # [S, 1]
    normals: Var  # [S, 3], of length about 1, outwards


class PackedModel(PlainModel):
    """A kind whose samples lie in occupied cells; it has to say `_look`, `_renew` and the rest of the protocol."""

    samples_block = "packed"  # the block of SamplesConfig, for messages

    def __init__(self, grid: GridField, packed: SamplesConfig, train: TrainConfig) -> None:
        self.grid, self.packed, self.train = grid, packed, train
        self.occupancy = Occupancy(_ball(packed.cells))
        self.packed_sampler: PackedSampler | None = None

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PackedSampler:
        """Pixels that may see the hull of the masks, of the whole unit sphere without them."""
        if scene.masks is not None and self.train.mask_weight > 0:
            sizes = np.array([scene.size(view) for view in range(scene.n_views)], np.float64)
            views = masked_views(Cameras(scene.intrinsics, scene.c2w, sizes), scene.masks)
            hull = carve_unit_sphere(views, self.packed.cells, self.packed.hull_margin)
            if not hull.any():
                raise UserError(
                    f"{scene.name}: the masks leave nothing of the region of interest; check the masks and the cameras "
                    "with --mode inspect, or train without them (train.mask_weight = 0)"
                )
            self.occupancy.enclose(hull)
        self.packed_sampler = PackedSampler(scene, self.occupancy, batch_size, self.packed.samples, generator)
        self._schedule(0)
        return self.packed_sampler

    def batch(self, arrays: Mapping[str, np.ndarray]) -> PackedBatch:
        """The batch that has these arrays."""
        return PackedBatch.from_arrays(arrays)

    def draw_noise(self, entries: int, generator: np.random.Generator) -> None:
        """None: the samples of a batch are jittered as they are drawn."""

    def settle(self, batch: PackedBatch, noise: None, moment: Moment) -> None:
        """Nothing."""

    def before_step(self, moment: Moment) -> None:
        """Levels, step length and, from time to time, the cells."""
        self._schedule(moment.step)
        is_due = moment.step > 0 and moment.step % self.packed.prune_every == 0
        if is_due and moment.step >= self.packed.prune_from * self.train.end_iter:
            self._renew()
            if self.packed_sampler is not None and self.packed_sampler.lost_share() > MOST_LOST:
                self.occupancy.open()

    def _schedule(self, step: int) -> None:
        """The levels that are read and the distance of samples at a step."""
        packed, levels = self.packed, self.grid.conf.levels
        done = step / self.train.end_iter
        first = min(packed.first_levels, levels)
        self.grid.active = min(levels, first + int((levels - first + 1) * done / packed.levels_until))
        if self.packed_sampler is not None:
            falls = min(1.0, done / packed.steps_until)
            self.packed_sampler.anywhere = packed.anywhere if done >= packed.levels_until else 0.0
            self.packed_sampler.step = packed.first_step + (packed.last_step - packed.first_step) * falls

    def _renew(self) -> None:
        """Tell the cells again."""
        raise NotImplementedError

    def _look(self, points: Var, directions: Var, offsets: Var, step: float) -> PackedView:
        """What S samples [S, 3] of R rays show, without gradients; offsets as in `ops.packed`."""
        raise NotImplementedError

    def view(self, rays: Rays, moment: Moment) -> RayView:
        """What R rays show, as many at a time as fit VIEW_BUDGET samples."""
        step, count = self.packed.last_step, len(rays)
        rgb, normal = np.zeros((count, 3), np.float32), np.zeros((count, 3), np.float32)
        distance, opacity = np.zeros((count, 1), np.float32), np.zeros((count, 1), np.float32)
        behind = 0.0 if moment.background_rgb is None else moment.background_rgb
        rgb[:] = behind
        start = 0
        while start < count:
            rest = rays.at(slice(start, count))
            walk = self.occupancy.walk(rest, np.full((len(rest), 1), 0.5, np.float32), step, VIEW_BUDGET)
            if len(walk.rows):
                with jt.no_grad():
                    offsets = jt.array(walk.offsets)
                    seen = self._look(jt.array(walk.points), jt.array(walk.directions), offsets, step)
                    values = jt.concat([seen.normals, jt.array(walk.depths)], dim=1)
                    shown = packed_sum(seen.weights, values, offsets).numpy()
                at = start + walk.rows
                opacity[at] = 1.0 - seen.left.numpy()
                rgb[at] = seen.rgb.numpy() + (1.0 - opacity[at]) * behind
                normal[at] = shown[:, :3]
                is_seen = opacity[at] > SEEN_OPACITY
                distance[at] = np.divide(shown[:, 3:], opacity[at], out=np.zeros_like(opacity[at]), where=is_seen)
            start += max(walk.walked, 1)
        return RayView(rgb, normal, distance, opacity)

    view_fully = view

    def buffers(self) -> dict[str, np.ndarray]:
        """The hull, the cells, and how many levels are read."""
        return {"hull": self.occupancy.hull, "cells": self.occupancy.cells, "levels": np.array([self.grid.active])}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Take them back; raises ValueError for others."""
        for name, own in self.buffers().items():
            found = buffers.get(name)
            if found is None or found.dtype != own.dtype:
                raise ValueError(f"its buffer {name} is missing, or of another kind than {own.dtype}")
            if found.shape != own.shape:
                raise ValueError(
                    f"its buffer {name} has {len(found)} entries along a side, the conf asks for {len(own)} "
                    f"(model.{self.samples_block}.cells)"
                )
        hull, cells, levels = (buffers[name] for name in ("hull", "cells", "levels"))
        if not hull.any() or cells.max() > SOLID or cells[~hull].any() or not 1 <= levels[0] <= self.grid.conf.levels:
            raise ValueError("its hull, cells or levels are not such as a training makes")
        self.occupancy.enclose(hull)
        self.occupancy.set(cells)
        self.grid.active = int(levels[0])

    def _is_outside(self, points: np.ndarray) -> np.ndarray:
        """Whether points [P, 3] lie in cells beyond the hull: bool [P]."""
        cells = len(self.occupancy.hull)
        at = np.clip(np.floor((points + 1) * (0.5 * cells)).astype(np.int64), 0, cells - 1)
        return ~self.occupancy.hull[at[:, 0], at[:, 1], at[:, 2]]


def _ball(cells: int) -> np.ndarray:
    """The cells whose middles lie in the unit sphere: bool [cells, cells, cells]."""
    ticks = ((np.arange(cells) + 0.5) * 2.0 / cells - 1) ** 2
    return ticks[:, None, None] + ticks[None, :, None] + ticks < 1
