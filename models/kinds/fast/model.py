"""NeuS on a grid of features with packed samples: networks, objective, pictures, surface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models.config.blocks import TrainConfig
from models.fields.color import RenderingNetwork
from models.fields.sdf_grid import SDFGrid
from models.fields.sharpness import SingleVarianceNetwork
from models.kinds.fast.batch import PackedBatch
from models.kinds.fast.conf import FastNeuSConfig
from models.kinds.fast.outputs import PackedOutput
from models.kinds.fast.terms import free_term
from models.kinds.fast.packed import PackedModel, PackedView
from models.kinds.neus.terms import eikonal_term
from models.kinds.protocol import LevelSet, Moment, Noise, Objective
from models.kinds.terms import binary_mask, color_term, mask_term, masked_psnr
from models.machine.backend import jt
from models.ops.packed import packed_sum, packed_weights
from models.ops.section_alpha import section_alpha
from models.rendering.sections import over_background
from models.structs import Var

CELL_HALF_DIAGONAL = 0.5 * 3**0.5  # in edges of a cell


@dataclass(frozen=True)
class Fields:
    sdf: SDFGrid
    color: RenderingNetwork
    sharpness: SingleVarianceNetwork


class FastNeuSModel(PackedModel):
    """A `models.kinds.protocol.Model`."""

    def __init__(self, fields: Fields, conf: FastNeuSConfig, train: TrainConfig) -> None:
        super().__init__(fields.sdf, conf.packed, train)
        self.fields, self.conf = fields, conf

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

    def rates(self, step: int) -> Mapping[str, float]:
        packed = self.conf.packed
        warm = min(1.0, (step + 1) / (packed.warm_up + 1))
        return {
            "sdf_network_fine": packed.network_rate * warm,
            "sdf_network_fine.table": warm,
            "color_network_fine": packed.network_rate * warm,
            "variance_network_fine": packed.sharpness_rate * warm,
        }

    def _renew(self) -> None:
        reach = self.occupancy.side * CELL_HALF_DIAGONAL + self.conf.packed.shell / self.sharpness()
        sdf = self._distances(self.occupancy.centres())[:, 0]
        self.occupancy.renew(sdf > reach, sdf < -reach)

    def _look(self, points: Var, directions: Var, offsets: Var, step: float) -> PackedView:
        field, weights, left, rgb, _ = self._render(points, directions, offsets, step)
        return PackedView(rgb, left, weights, field.gradient)

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
            "free": free_term(field.sdf, jt.array(batch.is_free()), self.conf.packed.free_weight),
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

    def _distances(self, points: np.ndarray) -> np.ndarray:
        with jt.no_grad():
            sdf = self.fields.sdf.at_weights().distance(jt.array(points)).numpy()
        outside = self._is_outside(points)
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
