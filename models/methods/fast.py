"""The fast methods: surfaces and radiance fields on hash grids, with packed samples in occupied cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from data.rays import Rays
from data.scenes.scene import Scene
from models.config.blocks import PatchesConfig, PhotographsConfig, TrainConfig
from models.estimators.background import ContractedBackground
from models.estimators.conf import PackedConfig
from models.estimators.open_surface import OpenSurfaceEstimator
from models.estimators.packed import PackedBatch, PackedBatches
from models.estimators.packed_radiance import RadianceOccupancyEstimator
from models.estimators.packed_surface import SurfaceEstimator, SurfaceOccupancyEstimator
from models.estimators.schedule import SamplingSchedule
from models.estimators.visibility import NO_ANNEALING
from models.fields.color import RenderingNetwork
from models.fields.grids import DensityGrid
from models.fields.protocol import RadianceFields, SurfaceFields
from models.fields.registry import COLORS, RADIANCE, SURFACES
from models.fields.sdf import SingleVarianceNetwork
from models.machine.backend import jt
from models.methods.confs import FAST_NERF, FAST_NEUS, FastNeRFConfig, FastNeuSConfig
from models.methods.nerf import RadianceModel
from models.methods.neus import SurfaceModel
from models.methods.protocol import LevelSet
from models.methods.sparing import packed_view
from models.ops.volrend import weights_from_alpha
from models.plan import NONE, TrainingPlan
from models.rendering.losses import MOST_COMPARED, PatchComparison, masked_target
from models.rendering.protocol import Targets
from models.rendering.render import render_radiance, render_surface, surface_alpha
from models.structs import Array, FieldOutput, RayBatch, RayView, RenderOutput, Var


class PackedSurfaceModel(SurfaceModel):
    """A surface sampled in occupied cells, with additional losses."""

    type = FAST_NEUS
    estimator: SurfaceEstimator

    def __init__(
        self,
        fields: SurfaceFields,
        estimator: SurfaceEstimator,
        train: TrainConfig,
        plan: TrainingPlan,
        packed: PackedConfig,
        patches: PatchesConfig,
        photographs: PhotographsConfig,
    ) -> None:
        super().__init__(fields, estimator, train, plan, photographs)
        self._packed, self._patches_conf = packed, patches
        self.patches: PatchComparison | None = None  # images of the scene, if patches are compared

    def cos_anneal_ratio(self, step: int) -> float:
        """1: the increase of inv_s replaces the annealing."""
        return NO_ANNEALING

    def rates(self, step: int) -> dict[str, float]:
        """Tables learn at the full rate, the networks and inv_s at fractions of it."""
        factors = dict.fromkeys(self.networks, self._packed.network_rate)
        factors |= {f"{name}.table": 1.0 for name in self.networks}
        return factors | {"variance_network_fine": self._packed.sharpness_rate} | super().rates(step)

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PackedBatches:
        """See `VolumeModel.sampler`; also keeps the images for the patch comparison."""
        sampler = super().sampler(scene, batch_size, generator)
        self.patches = PatchComparison(scene, self._patches_conf) if self.weights["patches"].value > 0 else None
        self.estimator.most_compared = None if self.patches is None else MOST_COMPARED
        return sampler

    def free_rays(self, batch: PackedBatch) -> Array | None:
        """Rays outside the masks; without masks, rays with the colour of a uniform backdrop."""
        return self.estimator.free_rays(batch)

    def view(self, rays: Rays, step: int) -> RayView:
        """Colours with background; normal, distance and opacity of the region."""
        estimator, behind = self.estimator, self.behind

        def look(rays: Rays) -> tuple[RenderOutput, Var, int]:
            step_size, inv_s = estimator.resolving_step_size(), self.fields.sharpness()
            traversed = estimator.march_view(rays, step_size)
            geometry = self.fields.sdf.bind().evaluate(traversed.points)
            deltas = jt.full_like(geometry.sdf, step_size)
            alpha = surface_alpha(geometry, traversed.directions, deltas, inv_s, NO_ANNEALING)
            weights = weights_from_alpha(alpha, traversed.offsets)
            samples, rows, count = estimator.see_view(rays, traversed, *weights)
            seen = FieldOutput(geometry.sdf[rows], geometry.feature[rows], geometry.gradient[rows])
            shown = render_surface(self.fields.color, inv_s, samples, seen, NO_ANNEALING, behind)
            return shown, seen.gradient, count

        return packed_view(rays, look, behind)

    @property
    def level_set(self) -> LevelSet:
        """The zero level set of the signed distance, within the region."""
        return replace(super().level_set, outward=self.estimator.outward, seen_space=self.estimator.seen_space)


class PackedRadianceModel(RadianceModel):
    """A radiance field sampled in occupied cells."""

    type = FAST_NERF
    estimator: RadianceOccupancyEstimator

    def targets(self, batch: RayBatch) -> Targets:
        """All rays count; with masks, pixels outside are fitted to the background."""
        counts = jt.ones((len(batch), 1))
        if batch.mask is None:
            return Targets(jt.array(batch.rgb), counts, None)
        mask = jt.array(batch.mask)
        return Targets(masked_target(jt.array(batch.rgb), mask, self.behind), counts, mask)

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """The occupied fraction of the grid."""
        return f"cells {100.0 * np.mean(self.estimator.grid.cells > 0):.1f} %"

    def view(self, rays: Rays, step: int) -> RayView:
        """Colours, normals of the density, distance and opacity."""
        estimator, field = self.estimator, self.fields.fine
        behind = self.behind

        def look(rays: Rays) -> tuple[RenderOutput, Var, int]:
            samples, count = estimator.view_samples(rays)
            shown, normals = field.with_normals(samples.positions, samples.directions)
            return render_radiance(shown, samples, behind), normals, count

        return packed_view(rays, look, behind)

    def _emptiness(self, points: np.ndarray) -> np.ndarray:
        return -self.estimator.extracted(points)


THIN = 0.05  # initial density with a uniform backdrop; below the threshold, so that empty cells are pruned


def build_neus(
    conf: FastNeuSConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan
) -> PackedSurfaceModel:
    """A `PackedSurfaceModel` of the conf: inside masks, or open with a background."""
    surface = conf.block(conf.surface)
    if hasattr(surface, "smooth"):  # a grid
        surface = replace(surface, smooth=plan.smooth.value)
    sdf = SURFACES[conf.surface].build(surface, generator)
    sdf.begin_with_sphere(plan.radius, is_inverted=plan.is_interior)
    color = COLORS[conf.color].build(conf, generator)
    fields = SurfaceFields(sdf, color, SingleVarianceNetwork(conf.variance_network))
    schedule = SamplingSchedule(conf.packed, train.end_iter, plan.prune_from.value)
    estimator: SurfaceEstimator
    if plan.background.value == NONE:
        estimator = SurfaceOccupancyEstimator(schedule, plan, fields, conf.inside)
    else:
        grid = conf.density_grid if plan.sky is None else replace(conf.density_grid, density=THIN)
        density = DensityGrid(grid, generator)
        behind = RenderingNetwork(conf.background_color, generator)
        background = ContractedBackground(density, behind, conf.open, plan.sky)
        estimator = OpenSurfaceEstimator(schedule, plan, fields, conf.open, background)
    return PackedSurfaceModel(fields, estimator, train, plan, conf.packed, conf.patches, conf.photographs)


def build_nerf(
    conf: FastNeRFConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan
) -> PackedRadianceModel:
    """A `PackedRadianceModel` of the conf."""
    field = RADIANCE[conf.radiance_field].build(conf, "fine", generator)
    schedule = SamplingSchedule(conf.radiance, train.end_iter, plan.prune_from.value)
    estimator = RadianceOccupancyEstimator(schedule, plan, field, conf.radiance)
    return PackedRadianceModel(RadianceFields(field), estimator, train, plan, conf.photographs)
