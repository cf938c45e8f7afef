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
from models.kinds.fast.packed import PackedModel, PackedView
from models.kinds.fast.terms import curvature_term, free_term
from models.kinds.protocol import LevelSet, Moment, Noise, Objective
from models.kinds.terms import binary_mask, color_term, eikonal_term, mask_term, masked_psnr
from models.machine.backend import jt
from models.ops.packed import packed_sum, packed_weights
from models.ops.section_alpha import section_alpha
from models.rendering.sections import over_background
from models.structs import FieldOutput, Var

TERMS = ("color", "eikonal", "mask", "free", "curvature")  # each where there is one
CELL_HALF_DIAGONAL = 0.5 * 3**0.5  # in edges of a cell
FULL_COS = 1.0  # of the annealing of section angles (volrend.annealed_cos): none, the sharpness alone does it here


@dataclass(frozen=True)
class Fields:
    """What is trained."""

    sdf: SDFGrid
    color: RenderingNetwork
    sharpness: SingleVarianceNetwork


@dataclass(frozen=True)
class _Rendered:
    """S samples and the R rays that they make up."""

    field: FieldOutput  # [S, ...]
    weights: Var  # [S, 1]
    left: Var  # [R, 1], the light that passes
    rgb: Var  # [R, 3], before black
    inv_s: Var  # [1]


class FastNeuSModel(PackedModel):
    """A `models.kinds.protocol.Model`."""

    def __init__(self, fields: Fields, conf: FastNeuSConfig, train: TrainConfig) -> None:
        super().__init__(fields.sdf, conf.packed, train)
        self.fields, self.conf = fields, conf

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """By the names that NeuS has for their like."""
        return {
            "sdf_network_fine": self.fields.sdf,
            "variance_network_fine": self.fields.sharpness,
            "color_network_fine": self.fields.color,
        }

    @property
    def level_set(self) -> LevelSet:
        """The zero set of the signed distance."""
        return LevelSet(
            self._distances, 0.0, "the signed distance", bounded=True, gradient=self._gradients, color=self._colors
        )

    def sharpness(self) -> float:
        """inv_s."""
        with jt.no_grad():
            return float(self.fields.sharpness().item())

    def rates(self, step: int) -> Mapping[str, float]:
        """The table learns at the full rate, the networks and the sharpness at shares of it; all of them warm up."""
        packed = self.conf.packed
        warm = min(1.0, (step + 1) / (packed.warm_up + 1))
        return {
            "sdf_network_fine": packed.network_rate * warm,
            "sdf_network_fine.table": warm,
            "color_network_fine": packed.network_rate * warm,
            "variance_network_fine": packed.sharpness_rate * warm,
        }

    def _renew(self) -> None:
        """Cells no part of which is near enough to the surface to be seen are empty, or solid."""
        reach = self.occupancy.side * CELL_HALF_DIAGONAL + self.conf.packed.shell / self.sharpness()
        sdf = self._distances(self.occupancy.centres())[:, 0]
        self.occupancy.renew(sdf > reach, sdf < -reach)

    def objective(self, batch: PackedBatch, noise: Noise | None, moment: Moment, settled: None = None) -> Objective:
        """The terms of NeuS (arXiv 2106.10689, section 3.4) over packed samples, and that of free space."""
        points, directions, offsets = (jt.array(value) for value in (batch.points, batch.directions, batch.offsets))
        seen = self._render(points, directions, offsets, float(batch.step[0]))
        opacity = 1.0 - seen.left
        mask = binary_mask(None if batch.mask is None else jt.array(batch.mask), len(batch), self.train)
        rgb = over_background(seen.rgb, opacity, moment.background_rgb)
        output = PackedOutput(rgb, opacity, jt.array(batch.rgb), mask, seen.inv_s)
        everywhere = jt.ones((len(batch.points),))
        terms = {
            "color": color_term(rgb, output.target, mask),
            "eikonal": eikonal_term(seen.field.gradient, everywhere, self.train.igr_weight),
        }
        if batch.mask is not None and self.train.mask_weight > 0:
            terms["mask"] = mask_term(opacity, mask, self.train.mask_weight)
            terms["free"] = free_term(seen.field.sdf, jt.array(batch.is_free()), self.conf.packed.free_weight)
        if self.conf.packed.curvature_weight > 0:
            curvature = self.fields.sdf.at_weights().curvature(points)
            terms["curvature"] = curvature_term(curvature, self.conf.packed.curvature_weight)
        return Objective(terms, output)

    def _render(self, points: Var, directions: Var, offsets: Var, step: float) -> _Rendered:
        """Samples [S, 3], each the middle of a section `step` long; offsets as in `ops.packed`."""
        field = self.fields.sdf.at_weights().evaluate(points)
        rgb = self.fields.color(points, field.gradient, directions, field.feature)
        inv_s = self.fields.sharpness()
        cos = (directions * field.gradient).sum(dim=1, keepdims=True)
        alpha = section_alpha(field.sdf, cos, jt.full((points.shape[0], 1), step), inv_s, FULL_COS)
        weights, left = packed_weights(alpha, offsets)
        return _Rendered(field, weights, left, packed_sum(weights, rgb, offsets), inv_s)

    def _look(self, points: Var, directions: Var, offsets: Var, step: float) -> PackedView:
        """What samples show, without gradients."""
        seen = self._render(points, directions, offsets, step)
        return PackedView(seen.rgb, seen.left, seen.weights, seen.field.gradient)

    def scalars(self, output: PackedOutput, losses: Mapping[str, Var]) -> dict[str, Var]:
        """The published TensorBoard scalars, and the term of free space."""
        found = {f"Loss/{name}_loss": losses[name] for name in TERMS if name in losses}
        return found | {
            "Loss/loss": losses["total"],
            "Statistics/s_val": 1.0 / output.inv_s,
            "Statistics/psnr": masked_psnr(output.rgb, output.target, output.mask),
        }

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """The sharpness."""
        return f"inv_s {1.0 / scalars['Statistics/s_val']:.1f}"

    def _distances(self, points: np.ndarray) -> np.ndarray:
        """Signed distances [P, 1]; beyond the hull, where nothing is trained, at least the way to it."""
        with jt.no_grad():
            sdf = self.fields.sdf.at_weights().distance(jt.array(points)).numpy()
        outside = self._is_outside(points)
        sdf[outside] = np.maximum(sdf[outside], self.occupancy.to_hull(points[outside]))
        return sdf

    def _gradients(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Signed distances [P, 1] and their gradients [P, 3]."""
        with jt.no_grad():
            field = self.fields.sdf.at_weights().evaluate(jt.array(points))
            return field.sdf.numpy(), field.gradient.numpy()

    def _colors(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        """RGB [P, 3] of points seen against their normals [P, 3]."""
        with jt.no_grad():
            place = jt.array(points)
            field = self.fields.sdf.at_weights().evaluate(place)
            return self.fields.color(place, field.gradient, -jt.array(normals), field.feature).numpy()
