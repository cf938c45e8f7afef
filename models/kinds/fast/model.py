"""NeuS on a grid of features with packed samples: networks, objective, pictures, surface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data.rays import Rays
from data.roi.frustum import Cameras
from data.roi.visual_hull import carve_unit_sphere, masked_views
from data.scenes.scene import Scene
from models.config.blocks import TrainConfig
from models.fields.color import RenderingNetwork
from models.fields.sdf_grid import SDFGrid
from models.fields.sharpness import SingleVarianceNetwork
from models.kinds.fast.batch import PackedBatch, PackedSampler
from models.kinds.fast.conf import FastNeuSConfig
from models.kinds.fast.outputs import PackedOutput
from models.kinds.neus.terms import eikonal_term
from models.kinds.protocol import LevelSet, Moment, Noise, Objective, PlainModel
from models.kinds.terms import binary_mask, color_term, mask_term, masked_psnr
from models.machine.backend import jt
from models.ops.packed import packed_sum, packed_weights
from models.ops.section_alpha import section_alpha
from models.rendering.occupancy import Occupancy
from models.rendering.sections import expected_distance, over_background
from models.structs import RayView, Var

VIEW_BUDGET = 1 << 17  # samples of a picture that are computed at a time
CELL_HALF_DIAGONAL = 0.5 * 3**0.5  # in edges of a cell


@dataclass(frozen=True)
class Fields:
    sdf: SDFGrid
    color: RenderingNetwork
    sharpness: SingleVarianceNetwork


class FastNeuSModel(PlainModel):
    """A `models.kinds.protocol.Model`."""

    def __init__(self, fields: Fields, conf: FastNeuSConfig, train: TrainConfig) -> None:
        self.fields, self.conf, self.train = fields, conf, train
        self.occupancy = Occupancy(_ball(conf.packed.cells))
        self.packed_sampler: PackedSampler | None = None

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        return {
            "sdf_network_fine": self.fields.sdf,
            "variance_network_fine": self.fields.sharpness,
            "color_network_fine": self.fields.color,
        }

    @property
    def level_set(self) -> LevelSet:
        return LevelSet(
            self._distances, 0.0, "the signed distance", bounded=True, gradient=self._gradients, color=self._colors
        )

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PackedSampler:
        if scene.masks is not None and self.train.mask_weight > 0:
            sizes = np.array([scene.size(view) for view in range(scene.n_views)], np.float64)
            views = masked_views(Cameras(scene.intrinsics, scene.c2w, sizes), scene.masks)
            self.occupancy.hull = carve_unit_sphere(views, self.conf.packed.cells, self.conf.packed.hull_margin)
            self.occupancy.open()
        self.packed_sampler = PackedSampler(scene, self.occupancy, batch_size, self.conf.packed.samples, generator)
        self._schedule(0)
        return self.packed_sampler

    def batch(self, arrays: Mapping[str, np.ndarray]) -> PackedBatch:
        return PackedBatch.from_arrays(arrays)

    def draw_noise(self, entries: int, generator: np.random.Generator) -> None:
        del entries, generator

    def settle(self, batch, noise, moment):
        del batch, noise, moment

    def rates(self, step: int) -> Mapping[str, float]:
        packed = self.conf.packed
        warm = min(1.0, (step + 1) / (packed.warm_up + 1))
        return {
            "sdf_network_fine": packed.network_rate * warm,
            "sdf_network_fine.table": warm,
            "color_network_fine": packed.network_rate * warm,
            "variance_network_fine": packed.sharpness_rate * warm,
        }

    def before_step(self, moment: Moment) -> None:
        packed = self.conf.packed
        self._schedule(moment.step)
        if moment.step and moment.step % packed.prune_every == 0:
            if moment.step >= packed.prune_from * self.train.end_iter:
                self._renew()

    def _schedule(self, step: int) -> None:
        packed, levels = self.conf.packed, self.conf.sdf_grid.levels
        done = step / self.train.end_iter
        first = min(packed.first_levels, levels)
        self.fields.sdf.active = min(levels, first + int((levels - first + 1) * done / packed.levels_until))
        if self.packed_sampler is not None:
            falls = min(1.0, done / packed.steps_until)
            self.packed_sampler.step = packed.first_step + (packed.last_step - packed.first_step) * falls

    def _renew(self) -> None:
        reach = self.occupancy.side * CELL_HALF_DIAGONAL + self.conf.packed.shell / self.sharpness()
        sdf = self._distances(self.occupancy.centres())[:, 0]
        self.occupancy.renew(sdf > reach, sdf < -reach)

    def objective(self, batch: PackedBatch, noise: Noise | None, moment: Moment, settled: None = None) -> Objective:
        points, directions, offsets = (jt.array(v) for v in (batch.points, batch.directions, batch.offsets))
        count = len(batch.points)
        is_used = jt.array((np.arange(count) < batch.offsets[-1]).astype(np.float32)[:, None])
        field, weights, left, rgb, inv_s = self._render(points, directions, offsets, float(batch.step[0]))
        opacity = 1.0 - left
        shown = over_background(rgb, opacity, moment.background_rgb)
        mask = binary_mask(None if batch.mask is None else jt.array(batch.mask), len(batch), self.train)
        output = PackedOutput(shown, opacity, jt.array(batch.rgb), mask, field.gradient, is_used, inv_s)
        terms = {
            "color": color_term(output.rgb, output.target, mask),
            "eikonal": eikonal_term(field.gradient, is_used[:, 0], self.train.igr_weight),
            "mask": mask_term(opacity, mask, self.train.mask_weight),
        }
        return Objective(terms, output)

    def _render(self, points: Var, directions: Var, offsets: Var, step: float):
        field = self.fields.sdf.at_weights().evaluate(points)
        rgb = self.fields.color(points, field.gradient, directions, field.feature)
        inv_s = self.fields.sharpness()
        cos = (directions * field.gradient).sum(dim=1, keepdims=True)
        lengths = jt.full((points.shape[0], 1), step)
        alpha = section_alpha(field.sdf, cos, lengths, inv_s, 1.0)
        weights, left = packed_weights(alpha, offsets)
        return field, weights, left, packed_sum(weights, rgb, offsets), inv_s

    def scalars(self, output: PackedOutput, losses: Mapping[str, Var]) -> dict[str, Var]:
        return {
            "Loss/loss": losses["total"],
            "Loss/color_loss": losses["color"],
            "Loss/eikonal_loss": losses["eikonal"],
            "Loss/mask_loss": losses["mask"],
            "Statistics/s_val": 1.0 / output.inv_s,
            "Statistics/psnr": masked_psnr(output.rgb, output.target, output.mask),
        }

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        return f"inv_s {1.0 / scalars['Statistics/s_val']:.1f}"

    def sharpness(self) -> float:
        with jt.no_grad():
            return float(self.fields.sharpness().item())

    def view(self, rays: Rays, moment: Moment) -> RayView:
        step = self.conf.packed.last_step
        count = len(rays)
        rgb, normal = np.zeros((count, 3), np.float32), np.zeros((count, 3), np.float32)
        distance, opacity = np.zeros((count, 1), np.float32), np.zeros((count, 1), np.float32)
        behind = 0.0 if moment.background_rgb is None else moment.background_rgb
        rgb[:] = behind
        start = 0
        while start < count:
            rest = rays.slice(start, count)
            walk = self.occupancy.walk(rest, np.full((len(rest), 1), 0.5, np.float32), step, VIEW_BUDGET)
            if len(walk.rows):
                with jt.no_grad():
                    offsets = jt.array(walk.offsets)
                    field, weights, left, color, _ = self._render(
                        jt.array(walk.points), jt.array(walk.directions), offsets, step
                    )
                    shown = packed_sum(weights, jt.concat([field.gradient, jt.array(walk.depths)], dim=1), offsets)
                    at = start + walk.rows
                    opacity[at] = 1.0 - left.numpy()
                    rgb[at] = color.numpy() + (1.0 - opacity[at]) * behind
                    values = shown.numpy()
                    normal[at] = values[:, :3]
                    distance[at] = values[:, 3:] / np.maximum(opacity[at], 1e-6)
            start += max(walk.walked, 1)
        return RayView(rgb, normal, distance, opacity)

    view_fully = view

    def buffers(self) -> dict[str, np.ndarray]:
        return {"hull": self.occupancy.hull, "cells": self.occupancy.cells, "levels": np.array([self.fields.sdf.active])}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        self.occupancy.hull = buffers["hull"].astype(bool)
        self.occupancy.set(buffers["cells"].astype(np.uint8))
        self.fields.sdf.active = int(buffers["levels"][0])

    def _distances(self, points: np.ndarray) -> np.ndarray:
        with jt.no_grad():
            sdf = self.fields.sdf.at_weights().distance(jt.array(points)).numpy()
        cells = len(self.occupancy.hull)
        at = np.clip(np.floor((points + 1) * (0.5 * cells)).astype(np.int64), 0, cells - 1)
        outside = ~self.occupancy.hull[at[:, 0], at[:, 1], at[:, 2]]
        sdf[outside] = np.maximum(sdf[outside], self.occupancy.side)
        return sdf

    def _gradients(self, points: np.ndarray):
        with jt.no_grad():
            field = self.fields.sdf.at_weights().evaluate(jt.array(points))
            return field.sdf.numpy(), field.gradient.numpy()

    def _colors(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        with jt.no_grad():
            place = jt.array(points)
            field = self.fields.sdf.at_weights().evaluate(place)
            return self.fields.color(place, field.gradient, -jt.array(normals), field.feature).numpy()


def _ball(cells: int) -> np.ndarray:
    ticks = ((np.arange(cells) + 0.5) * 2.0 / cells - 1) ** 2
    return ticks[:, None, None] + ticks[None, :, None] + ticks < 1
