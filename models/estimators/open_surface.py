"""Occupancy sampling without masks: a surface in the region of interest, and a background outside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from data.rays import Rays
from data.scenes.scene import Posed, Scene
from models.estimators.background import ContractedBackground, MergedBackground
from models.estimators.budget import Sizes
from models.estimators.conf import OpenConfig
from models.estimators.occupancy import SeenSpace, boundary_faces, centred_jitter, rays_of_views
from models.estimators.packed import VIEW_BUDGET, PackedBatch, Visible, samples_at
from models.estimators.packed_surface import SurfaceEstimator, ViewSamples
from models.estimators.schedule import MOST_LOST, SamplingSchedule
from models.estimators.visibility import ALL, LEAST_WEIGHT, above, lost_share, passes, visible_samples
from models.fields.protocol import SurfaceFields
from models.machine.backend import jt
from models.ops.march import PackedSamples, compact, merged_order
from models.plan import FusedDepth, TrainingPlan
from models.structs import Array, RaySamples, SampleRequest, Var

FITTED = 8192  # points per step of the fit to fused depth, half of them on the surface
# With fused depth, the initial surface is known to about a hundredth of the radius.
DEPTH_INV_S = 60.0


class OpenSurfaceEstimator(SurfaceEstimator):
    """A surface whose rays go on into the background; hidden samples of both are skipped."""

    def __init__(
        self,
        schedule: SamplingSchedule,
        plan: TrainingPlan,
        fields: SurfaceFields,
        conf: OpenConfig,
        background: ContractedBackground,
    ) -> None:
        super().__init__(schedule, plan, fields, conf.shell, background.density, background_samples=conf.samples)
        self._conf, self.background, self.backdrop = conf, background, background.sky
        self._sfm_points: np.ndarray | None = None

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The networks of the background, by their names in checkpoints."""
        return {"background_density": self.background.density, "background_color": self.background.color}

    def see(self, views: Posed) -> None:
        """Take the cameras of a scene."""
        super().see(views)
        self.background.see(views)

    def initialise(self, scene: Scene) -> None:
        """Take cameras and points of a scene."""
        self.see(scene)
        self._sfm_points = self.sfm_points(scene)
        self.points = self._points(self.plan.depth)

    def begin(self) -> None:
        """See `Estimator.begin`: start from fused depth maps, if the plan says so."""
        generator, plan = np.random.default_rng(0), self.plan
        if (fused := plan.depth) is None:
            return

        def draw() -> tuple[np.ndarray, np.ndarray]:
            on_surface = fused.points[generator.integers(len(fused.points), size=FITTED // 2)]
            anywhere = self.grid.random_points(FITTED // 2, generator)
            distances = fused.distances(anywhere)
            if plan.is_interior:  # also where no wall has a depth
                distances = np.minimum(distances, plan.radius - np.linalg.norm(anywhere, axis=1, keepdims=True))
            return np.concatenate([on_surface, anywhere]), np.concatenate([np.zeros_like(distances), distances])

        self._sdf.begin_with(draw, self.conf.first_levels)
        self._sharpness.reset(DEPTH_INV_S)

    def before_step(self, step: int) -> None:
        """See `PackedEstimator.before_step`; also updates the cells of the background, and chooses the points of the
        step.
        """
        super().before_step(step)
        if self.schedule.updates_cells(step):
            self.background.update()
        self.points = self._points(self.plan.depth if step < self._conf.depth_until * self.schedule.end_iter else None)

    def _points(self, depth: FusedDepth | None) -> np.ndarray | None:
        """The points of depth maps first, SfM points later."""
        return depth.points if depth is not None and not self.plan.points.is_forced else self._sfm_points

    def resolving_step_size(self) -> float:
        """The step size for images: at least `open.blur_step` / inv_s, since a finer one only reduces the number of
        rays.
        """
        conf = self.conf
        return min(conf.first_step, max(conf.last_step, self._conf.blur_step / self.inv_s()))

    def free_rays(self, batch: PackedBatch) -> Var | None:
        """Rays with the colour of a plain backdrop; None without one."""
        return self.background.shows_alone(jt.array(batch.rgb)) if self.background.is_plain else None

    def sample(self, request: SampleRequest) -> RaySamples:
        """The samples of a batch, with opacities and colours of the background."""
        batch = request.batch
        assert isinstance(batch, PackedBatch) and batch.background is not None  # `visible` gives them
        return self._joined(batch.region, batch.background, batch.step_size)

    def _joined(self, region: PackedSamples, background: PackedSamples, step_size: float) -> RaySamples:
        alpha, rgb = self.background.evaluate(background.points, background.directions)
        (place, sample), offsets = merged_order(region, background), region.offsets + background.offsets
        merged = MergedBackground(alpha, rgb, place, sample, offsets, region.rays.shape[0])
        return replace(samples_at(region, step_size), background=merged)

    def visible(self, traversed: PackedSamples, rays: Rays, jitter: Array, step_size: float, sizes: Sizes) -> Visible:
        """Samples of negligible weight are skipped once cells are pruned, and always with a uniform backdrop."""
        weights, transmittance = self.weights(traversed, step_size)
        is_pruning = self.step >= self.pruner.first_step
        least = LEAST_WEIGHT if is_pruning or self.background.is_plain else ALL
        region = compact(traversed, above(weights, least), sizes.visible)
        background, background_traversed = self.background.visible(
            rays, jitter, passes(transmittance), sizes.background_traversed, sizes.background_visible
        )
        last = jt.minimum(region.kept, background.kept)
        return Visible(_up_to(region, last), _up_to(background, last), background_traversed)

    def see_view(self, rays: Rays, traversed: PackedSamples, weights: Var, transmittance: Var) -> ViewSamples:
        """See `SurfaceEstimator.see_view`."""
        region, rows = visible_samples(traversed, weights)
        count = region.offsets.shape[0] - 1
        some, jitter = rays.at(slice(0, count)), centred_jitter(count)
        background = self.background.samples(some, jitter, passes(transmittance), VIEW_BUDGET)
        background = background.first(max(1, int(background.offsets[-1:].item())))
        return (
            self._joined(_up_to(region, background.kept), background, self.resolving_step_size()),
            rows,
            int(background.kept.item()),
        )

    def prune(self) -> None:
        """See `SurfaceEstimator.prune`. The cells are unchanged if too many probe rays would lose the surface, because
        the field is not a distance yet.
        """
        before, opacities = self.grid.cells, self.probe_opacities()
        super().prune()
        if lost_share(opacities, self.probe_opacities()) > MOST_LOST:
            self.grid.set(before)

    def probe_opacities(self) -> np.ndarray:
        """Opacity [R] of the region along the probe rays, from samples in the current cells."""
        if self.pruner.probes is None:
            return np.zeros(0, np.float32)
        samples = self.grid.probe(self.pruner.probes)
        samples = samples.first(max(1, int(samples.offsets[-1:].item())))
        return 1.0 - self.weights(samples, self.grid.side)[1].numpy()[:, 0]

    @property
    def outward(self) -> Callable[[np.ndarray], np.ndarray]:
        """See `SurfaceEstimator.trained_distances`. It is negative in closed cavities, too. A surface that continues
        outside the sphere is cut by a smooth surface instead of cell faces.
        """
        grid = self.grid
        cavities = cache(lambda: grid.closed_off(self._cell_distances() < -self.reach))

        def outward(points: np.ndarray) -> np.ndarray:
            sdf = self.trained_distances(points)
            is_cavity = cavities()[grid.indices(points)]
            sdf[is_cavity] = -np.abs(sdf[is_cavity])
            cut = np.linalg.norm(points, axis=1, keepdims=True) - (1.0 - grid.side)
            return np.maximum(sdf, cut).astype(np.float32)

        return outward

    def seen_space(self, spacing: float) -> SeenSpace | None:
        """The space that cameras see, for a mesh of grid points at distance `spacing` of which only the seen parts are
        kept. Behind a wall, where no ray trains the field, its surface may have several times the triangles of the seen
        one. None if the surface is smaller than the boundary of this space, or the grid coarser than its cells.
        """
        grid, views = self.grid, self.background.views
        if views is None or spacing > grid.side:
            return None
        distances = self._cell_distances()
        is_inside = distances < 0
        space = SeenSpace(grid, distances < -self.reach, rays_of_views(views, grid.side))
        return space if boundary_faces(is_inside & space.cells) < boundary_faces(is_inside) else None

    def _cell_distances(self) -> np.ndarray:
        """The signed distance of the field at the cell centres, infinite outside the hull: float32 [N, N, N]."""
        distances = np.full(self.grid.hull.shape, np.inf, np.float32)
        distances[self.grid.hull] = self.hull_distances(self.reach)
        return distances

    def buffers(self) -> dict[str, np.ndarray]:
        """The cells of region and background."""
        return super().buffers() | self.background.buffers() | self.background.empty_cells.buffers()

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        super().load_buffers(buffers)
        self.background.load_buffers(buffers)
        self.background.empty_cells.load_buffers(buffers)


def _up_to(samples: PackedSamples, count: Var) -> PackedSamples:
    """Keep only the samples of the first rays; `count` int32 [1] is their number."""
    return replace(samples, offsets=jt.minimum(samples.offsets, samples.offsets[count]).stop_grad(), kept=count)
