"""NeuS on a grid of features with packed samples: networks, objective, pictures, surface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data.capture import training_points
from data.roi.sparse import LEAST_POINTS, well_supported
from data.scenes.scene import Scene
from models.config.blocks import TrainConfig
from models.fields.color import RenderingNetwork
from models.fields.sdf_grid import SDFGrid
from models.fields.sharpness import SingleVarianceNetwork
from models.kinds.fast.background import Background
from models.kinds.fast.batch import PackedBatch
from models.kinds.fast.conf import FastNeuSConfig
from models.kinds.fast.joined import order
from models.kinds.fast.light import FULL_COS, Light, lost_share, opacities, through_surface
from models.kinds.fast.outputs import PackedOutput
from models.kinds.fast.packed import MOST_LOST, Beyond, PackedModel, PackedView, Samples
from models.kinds.fast.patches import MOST_COMPARED, PatchComparison
from models.kinds.fast.sampler import PackedSampler
from models.kinds.fast.terms import anchor_term, curvature_term, free_term, patch_term
from models.kinds.protocol import LevelSet, Moment, Noise, Objective
from models.kinds.terms import binary_mask, color_term, eikonal_term, mask_term, masked_psnr
from models.machine.backend import jt
from models.ops.march import SOLID
from models.ops.packed import packed_sum, packed_weights
from models.ops.section_alpha import section_alpha
from models.rendering.occupancy import Walking
from models.rendering.sections import over_background
from models.structs import FieldOutput, Var

TERMS = ("color", "eikonal", "mask", "free", "points", "patches", "curvature")  # each where there is one
CELL_HALF_DIAGONAL = 0.5 * 3**0.5  # in edges of a cell


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
    opacity: Var  # [R, 1], of what is in the region
    rgb: Var  # [R, 3], before black
    inv_s: Var  # [1]


class FastNeuSModel(PackedModel):
    """A `models.kinds.protocol.Model`."""

    def __init__(
        self, fields: Fields, conf: FastNeuSConfig, train: TrainConfig, background: Background | None = None
    ) -> None:
        super().__init__(fields.sdf, conf.packed, train, background)
        self.fields, self.conf = fields, conf
        self._anchors: np.ndarray | None = None
        self._is_pruning = False
        self._patches: PatchComparison | None = None  # of a scene, where photographs are compared
        self._cavities: np.ndarray | None = None  # of the field as it is, once they are asked for

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """By the names that NeuS has for their like."""
        return {
            "sdf_network_fine": self.fields.sdf,
            "variance_network_fine": self.fields.sharpness,
            "color_network_fine": self.fields.color,
        } | ({} if self.background is None else self.background.networks)

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
            "background_density": packed.network_rate * warm,
            "background_density.table": warm,
            "background_color": packed.network_rate * warm,
        }

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PackedSampler:
        """With the points of structure from motion in the region, where they have a weight."""
        sampler = super().sampler(scene, batch_size, generator)
        self._anchors = None
        if scene.points is not None and self.conf.packed.points_weight > 0:
            xyz = well_supported(training_points(scene.points)).astype(np.float32)
            is_within = self.occupancy.hull[self.occupancy.place(xyz)] & (np.abs(xyz).max(axis=1) < 1)
            self._anchors = xyz[is_within] if is_within.sum() >= LEAST_POINTS else None
        sampler.anchors = self._anchors
        self._patches = PatchComparison(scene, self.conf.patches) if self.patches_weight > 0 else None
        sampler.most_compared = None if self._patches is None else MOST_COMPARED
        return sampler

    @property
    def patches_weight(self) -> float:
        """That of the comparison across photographs; another one where there is a background."""
        return self.conf.patches.weight if self.background is None else self.conf.background.patches_weight

    def before_step(self, moment: Moment) -> None:
        """The points of structure from motion take part at first, or always."""
        super().before_step(moment)
        self._cavities = None
        self._is_pruning = moment.step >= self._first_pruning
        if self.packed_sampler is not None:
            is_early = moment.step < self.conf.packed.points_until * self.train.end_iter
            self.packed_sampler.anchors = self._anchors if is_early else None

    def _renew(self) -> None:
        """Cells no part of which is near enough to the surface to be seen are empty, or solid.

        Not yet, where rays would lose the surface by it: a field is no distance everywhere while it is young.
        """
        shell = self.conf.packed.shell if self.background is None else self.conf.background.shell
        reach = self.occupancy.side * CELL_HALF_DIAGONAL + shell / self.sharpness()
        sdf = self._trained(self.occupancy.centres())[:, 0]
        before, seen = self.occupancy.cells, self._probed()
        self.occupancy.renew(sdf > reach, sdf < -reach)
        if lost_share(seen, self._probed()) > MOST_LOST:
            self.occupancy.set(before)

    def _probed(self) -> np.ndarray:
        """How opaque the region is along the probe rays [R]; of none where masks say more."""
        if self.packed_sampler is None or self.background is None:
            return np.zeros(0, np.float32)
        return opacities(self.occupancy, self.packed_sampler.probes, self._trained, self.sharpness())

    def objective(self, batch: PackedBatch, noise: Noise | None, moment: Moment, settled: None = None) -> Objective:
        """The terms of NeuS (arXiv 2106.10689, section 3.4) over packed samples, and that of free space."""
        samples = _samples(batch)
        seen = self._render(samples)
        mask = binary_mask(None if batch.mask is None else jt.array(batch.mask), len(batch), self.train)
        rgb = over_background(seen.rgb, 1.0 - seen.left, self._behind(moment))
        output = PackedOutput(rgb, seen.opacity, jt.array(batch.rgb), mask, seen.inv_s)
        everywhere = jt.ones((len(batch.points),))
        terms = {
            "color": color_term(rgb, output.target, mask),
            "eikonal": eikonal_term(seen.field.gradient, everywhere, self.train.igr_weight),
        }
        if batch.mask is not None and self.train.mask_weight > 0:
            terms["mask"] = mask_term(seen.opacity, mask, self.train.mask_weight)
            terms["free"] = free_term(seen.field.sdf, jt.array(batch.is_free()), self.conf.packed.free_weight)
        if self.background is not None and self.background.is_plain:
            is_free = batch.of_rays(self.background.shows_alone(batch.rgb))
            terms["free"] = free_term(seen.field.sdf, jt.array(is_free), self.conf.packed.free_weight)
        if batch.anchors is not None:
            terms["points"] = anchor_term(seen.field.sdf, jt.array(batch.is_anchor()), self.conf.packed.points_weight)
        is_due = moment.step >= self.conf.patches.begins * self.train.end_iter
        if is_due and self._patches is not None and batch.every is not None:
            costs = self._patches.costs(batch, samples, seen.field, seen.weights)
            terms["patches"] = patch_term(*costs, self.patches_weight)
        if self.conf.packed.curvature_weight > 0:
            curvature = self.fields.sdf.at_weights().curvature(samples.points)
            terms["curvature"] = curvature_term(curvature, self.conf.packed.curvature_weight)
        return Objective(terms, output)

    def _render(self, samples: Samples) -> _Rendered:
        """Region and background along each ray."""
        points, directions, beyond = samples.points, samples.directions, samples.beyond
        field = self.fields.sdf.at_weights().evaluate(points)
        rgb = self.fields.color(points, field.gradient, directions, field.feature)
        inv_s = self.fields.sharpness()
        cos = (directions * field.gradient).sum(dim=1, keepdims=True)
        alpha = section_alpha(field.sdf, cos, jt.full((points.shape[0], 1), samples.step), inv_s, FULL_COS)
        if beyond is None:
            weights, left = packed_weights(alpha, samples.offsets)
            return _Rendered(field, weights, left, 1.0 - left, packed_sum(weights, rgb, samples.offsets), inv_s)
        far_alpha, far_rgb = self.background.look(beyond.points, beyond.directions)
        weights, left = packed_weights(beyond.order.along_rays(alpha, far_alpha), beyond.offsets)
        rgb = packed_sum(weights, beyond.order.along_rays(rgb, far_rgb), beyond.offsets)
        own = beyond.order.of_near(weights, len(points))
        return _Rendered(field, own, left, packed_sum(own, jt.ones_like(own), samples.offsets), rgb, inv_s)

    @property
    def _sifts(self) -> bool:
        """Whether samples that show nothing are left out: once cells are, before a plain backdrop always."""
        return self._is_pruning or self.background.is_plain

    def _light(self, walking: Walking, step: float) -> Light:
        """What light does in the region along the rays of a walk, told by the distances alone."""
        with jt.no_grad():
            sdf = self.fields.sdf.at_weights().distance(walking.points())
            inv_s = self.fields.sharpness()
            jt.sync([sdf, inv_s])  # all, before a card is waited for
            return through_surface(walking.walk, sdf.numpy(), inv_s.numpy(), step, self._sifts)

    def _look(self, samples: Samples) -> PackedView:
        """What samples show, without gradients."""
        seen = self._render(samples)
        return PackedView(seen.rgb, seen.left, seen.opacity, seen.weights, seen.field.gradient)

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
        """Signed distances [P, 1]; beyond the hull, where nothing is trained, at least the way to it.

        In solid cells it is negative: what of the field no ray comes to may hold pockets. So it is in cavities.
        """
        sdf = self._trained(points)
        outside = self._is_outside(points)
        sdf[outside] = np.maximum(sdf[outside], self.occupancy.to_hull(points[outside]))
        is_solid = self.occupancy.at(points) == SOLID
        sdf[is_solid] = np.minimum(sdf[is_solid], -self.occupancy.side)
        if self.background is not None:
            is_cavity = self._in_cavities(points)
            sdf[is_cavity] = -np.abs(sdf[is_cavity])
            # What goes on beyond the sphere ends on a smooth one, not at edges of cells.
            sdf = np.maximum(sdf, np.linalg.norm(points, axis=1, keepdims=True) - (1.0 - self.occupancy.side))
        return sdf.astype(np.float32)

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Take them back; raises ValueError for others."""
        super().load_buffers(buffers)
        self._cavities = None

    def _in_cavities(self, points: np.ndarray) -> np.ndarray:
        """Which points [P, 3] lie in cells that a closed surface parts from all cameras: bool [P].

        A cell is wall where no point of it is outside, by the slope of one of a distance.
        """
        if self._cavities is None:
            is_wall = np.zeros_like(self.occupancy.hull)
            reach = self.occupancy.side * CELL_HALF_DIAGONAL
            is_wall[self.occupancy.hull] = self._trained(self.occupancy.centres())[:, 0] < -reach
            self._cavities = self.occupancy.closed_off(is_wall)
        return self._cavities[self.occupancy.place(points)]

    def _trained(self, points: np.ndarray) -> np.ndarray:
        """Signed distances [P, 1] as the field has them."""
        with jt.no_grad():
            return self.fields.sdf.at_weights().distance(jt.array(points)).numpy()

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


def _samples(batch: PackedBatch) -> Samples:
    """Those of a batch, on the device."""
    points, directions, offsets = (jt.array(value) for value in (batch.points, batch.directions, batch.offsets))
    beyond = None
    if batch.far_offsets is not None:
        beyond = Beyond(
            jt.array(batch.far_points),
            jt.array(batch.far_directions),
            order(batch.offsets, batch.depths, batch.far_offsets, batch.far_depths),
            jt.array(batch.offsets + batch.far_offsets),
        )
    return Samples(points, directions, offsets, batch.depths, float(batch.step[0]), beyond)
