"""What the kinds on grids share: batches of packed samples, the cells they lie in, pictures, what is saved of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from data.errors import UserError
from data.rays import Rays
from data.roi.frustum import Cameras
from data.roi.near import near_plane
from data.roi.visual_hull import carve_unit_sphere, masked_views
from data.scenes.scene import Scene
from models.config.blocks import TrainConfig
from models.fields.grid_field import GridField
from models.kinds.fast.background import NEAR_SHARE_BEFORE, Background
from models.kinds.fast.batch import PackedBatch
from models.kinds.fast.conf import SamplesConfig
from models.kinds.fast.joined import Order, align, order
from models.kinds.fast.light import Light
from models.kinds.fast.sampler import PackedSampler
from models.kinds.protocol import Moment, PlainModel
from models.machine.backend import jt
from models.ops.march import SOLID
from models.ops.packed import packed_sum
from models.rendering.occupancy import Occupancy, Walking
from models.rendering.sections import SEEN_OPACITY
from models.structs import RayView, Var

MOST_LOST = 0.02  # of the rays of the masks: where a field loses more, its cells are not believed
# Buffers that checkpoints of earlier versions lack, as these versions worked.
OF_EARLIER_VERSIONS = {"prunes_after": np.zeros(1, np.int64), "background_near_share": NEAR_SHARE_BEFORE}
VIEW_BUDGET = 1 << 17  # samples of a picture that are computed at a time


@dataclass(frozen=True)
class Beyond:
    """F samples of R rays beyond the region, and how they lie among those in it."""

    points: Var  # [F, 3], in contracted places
    directions: Var  # [F, 3]
    order: Order
    offsets: Var  # int32 [R + 1], of all


@dataclass(frozen=True)
class Samples:
    """S samples of R rays, each the middle of a section `step` long; offsets as in `ops.packed`."""

    points: Var  # [S, 3]
    directions: Var  # [S, 3]
    offsets: Var  # int32 [R + 1]
    depths: np.ndarray | None  # [S, 1]
    step: float
    beyond: Beyond | None = None


@dataclass(frozen=True)
class PackedView:
    """What a kind makes of S samples of R rays."""

    rgb: Var  # [R, 3], before black
    left: Var  # [R, 1], the light that passes
    opacity: Var  # [R, 1], of what is in the region
    weights: Var  # [S, 1]
    normals: Var  # [S, 3], of length about 1, outwards


class PackedModel(PlainModel):
    """A kind whose samples lie in occupied cells; it has to say `_look`, `_renew` and the rest of the protocol."""

    samples_block = "packed"  # the block of SamplesConfig, for messages

    def __init__(
        self, grid: GridField, packed: SamplesConfig, train: TrainConfig, background: Background | None = None
    ) -> None:
        self.background = background
        self.grid, self.packed, self.train = grid, packed, train
        self.occupancy = Occupancy(_ball(packed.cells))
        self.packed_sampler: PackedSampler | None = None
        self._prunes_after = 0  # steps, whatever the conf says: before them pruning led to a collapse

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
            self.background = None
        self.occupancy.cameras = scene.c2w[:, :3, 3]
        self.occupancy.near_plane = near_plane(self.occupancy.cameras, scene.points)
        if self.background is not None:
            self.background.occupancy.near_plane = self.occupancy.near_plane
            self.background.fit(scene)
        self.packed_sampler = PackedSampler(
            scene, self.occupancy, batch_size, self.packed.samples, generator, self.background
        )
        if self.background is not None:
            self.packed_sampler.light = self._light
        self._schedule(0)
        return self.packed_sampler

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """Without a scene to say so: a background where there was one."""
        if self.packed_sampler is None and self.background is not None and not shapes.keys() & self.background.networks:
            self.background = None

    def batch(self, arrays: Mapping[str, np.ndarray]) -> PackedBatch:
        """The batch that has these arrays."""
        return PackedBatch.from_arrays(arrays)

    def share(self, batch: PackedBatch, rank: int, size: int) -> slice | None:
        """Rays with about as many samples for each process; those of no ray are taken with the last ray."""
        if len(batch) < size:
            return None
        return slice(*batch.borders(size)[rank : rank + 2])

    def draw_noise(self, entries: int, generator: np.random.Generator) -> None:
        """None: the samples of a batch are jittered as they are drawn."""

    def settle(self, batch: PackedBatch, noise: None, moment: Moment) -> None:
        """Nothing."""

    def before_step(self, moment: Moment) -> None:
        """Levels, step length and, from time to time, the cells."""
        self._schedule(moment.step)
        is_due = moment.step > 0 and moment.step % self.packed.prune_every == 0
        if is_due and self.background is not None:
            self.background.renew()
        if moment.step < self._first_pruning:
            if not self.occupancy.is_open:
                self._reopen()
        elif is_due:
            self._renew()
            if self.packed_sampler is not None and self.packed_sampler.lost_share() > MOST_LOST:
                self.occupancy.open()

    def after_collapse(self, step: int) -> str:
        """No cell is pruned before this step."""
        self._prunes_after = step
        return f", and no cells are pruned before step {step}"

    @property
    def _first_pruning(self) -> float:
        """The step from which on cells are asked whether they are empty."""
        return max(self.prune_from * self.train.end_iter, self._prunes_after)

    @property
    def prune_from(self) -> float:
        """The share of the training from which on cells are asked; later where a background may stand in for them."""
        is_bare = self.background is None or self.background.is_plain
        return self.packed.prune_from if is_bare else self.background.conf.prune_from

    def _grids(self) -> list[GridField]:
        """The fields whose levels are switched on."""
        return [self.grid] if self.background is None else [self.grid, self.background.density]

    def _schedule(self, step: int) -> None:
        """The levels that are read and the distance of samples at a step."""
        packed = self.packed
        done = step / self.train.end_iter
        for field in self._grids():
            levels = field.conf.levels
            first = min(packed.first_levels, levels)
            field.active = min(levels, first + int((levels - first + 1) * done / packed.levels_until))
        if self.packed_sampler is not None:
            falls = min(1.0, done / packed.steps_until)
            self.packed_sampler.anywhere = packed.anywhere if done >= packed.levels_until else 0.0
            self.packed_sampler.step = packed.first_step + (packed.last_step - packed.first_step) * falls

    def _renew(self) -> None:
        """Tell the cells again."""
        raise NotImplementedError

    def _reopen(self) -> None:
        """Forget which cells are empty: a shorter schedule, gone on from, told so of a coarser field.

        Where no ray comes the field stays as it is, and so would they.
        """
        self.occupancy.open()

    def _light(self, walking: Walking, step: float) -> Light:
        """What light does in the region along the rays of a walk with samples `step` apart."""
        raise NotImplementedError

    def _look(self, samples: Samples) -> PackedView:
        """What samples show, without gradients."""
        raise NotImplementedError

    def view(self, rays: Rays, moment: Moment) -> RayView:
        """What R rays show, as many at a time as fit VIEW_BUDGET samples."""
        count = len(rays)
        rgb, normal = np.zeros((count, 3), np.float32), np.zeros((count, 3), np.float32)
        distance, opacity = np.zeros((count, 1), np.float32), np.zeros((count, 1), np.float32)
        behind = self._behind(moment)
        rgb[:] = 0.0 if behind is None else behind
        start = 0
        while start < count:
            rows, samples, walked = self._samples(rays.at(slice(start, count)))
            if len(rows):
                with jt.no_grad():
                    seen = self._look(samples)
                    values = jt.concat([seen.normals, jt.array(samples.depths)], dim=1)
                    shown = packed_sum(seen.weights, values, samples.offsets).numpy()
                at = start + rows
                opacity[at] = seen.opacity.numpy()
                rgb[at] = seen.rgb.numpy() + seen.left.numpy() * rgb[at]
                normal[at] = shown[:, :3]
                is_seen = opacity[at] > SEEN_OPACITY
                distance[at] = np.divide(shown[:, 3:], opacity[at], out=np.zeros_like(opacity[at]), where=is_seen)
            start += max(walked, 1)
        return RayView(rgb, normal, distance, opacity)

    def _behind(self, moment: Moment) -> np.ndarray | None:
        """The colour [3] of light that nothing stops; None for black."""
        return moment.background_rgb if self.background is None else self.background.sky

    def _samples(self, rays: Rays) -> tuple[np.ndarray, Samples, int]:
        """Of the first rays: which have samples, these, and how many rays were walked."""
        step, jitter = self.packed.last_step, np.full((len(rays), 1), 0.5, np.float32)
        walking = self.occupancy.start(rays, jitter, step, VIEW_BUDGET)
        near = walking.walk
        if self.background is None:
            offsets = jt.array(near.offsets)
            samples = Samples(jt.array(near.points), jt.array(near.directions), offsets, near.depths, step)
            return near.rows, samples, near.walked
        passes = self._light(walking, step).passes
        walked = rays.at(slice(0, near.walked))
        far = self.background.ask(walked, jitter[: near.walked], passes).lit(walked, passes, VIEW_BUDGET)
        both = align(near, far)
        beyond = Beyond(
            jt.array(far.points),
            jt.array(far.directions),
            order(both.near, near.depths, both.far, far.depths),
            jt.array(both.near + both.far),
        )
        offsets = jt.array(both.near)
        samples = Samples(jt.array(near.points), jt.array(near.directions), offsets, near.depths, step, beyond)
        return both.rows, samples, both.walked

    view_fully = view

    def buffers(self) -> dict[str, np.ndarray]:
        """The hull, the cells, and how many levels are read."""
        beyond = {} if self.background is None else self.background.buffers()
        return beyond | {
            "hull": self.occupancy.hull,
            "cells": self.occupancy.cells,
            "levels": np.array([field.active for field in self._grids()]),
            "prunes_after": np.array([self._prunes_after]),
        }

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Take them back; raises ValueError for others."""
        buffers = OF_EARLIER_VERSIONS | buffers
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
        if not hull.any() or cells.max() > SOLID or cells[~hull].any() or not self._have(levels):
            raise ValueError("its hull, cells or levels are not such as a training makes")
        self.occupancy.enclose(hull)
        self.occupancy.set(cells)
        self._prunes_after = int(buffers["prunes_after"][0])
        for field, active in zip(self._grids(), levels, strict=True):
            field.active = int(active)
        if self.background is not None:
            self.background.load_buffers(buffers)

    def _have(self, levels: np.ndarray) -> bool:
        """Whether the grids have so many levels."""
        return all(1 <= active <= field.conf.levels for field, active in zip(self._grids(), levels, strict=True))

    def _is_outside(self, points: np.ndarray) -> np.ndarray:
        """Whether points [P, 3] lie in cells beyond the hull: bool [P]."""
        return ~self.occupancy.hull[self.occupancy.place(points)]


def _ball(cells: int) -> np.ndarray:
    """The cells whose middles lie in the unit sphere: bool [cells, cells, cells]."""
    ticks = ((np.arange(cells) + 0.5) * 2.0 / cells - 1) ** 2
    return ticks[:, None, None] + ticks[None, :, None] + ticks < 1
