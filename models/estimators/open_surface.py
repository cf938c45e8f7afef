"""Occupancy sampling without masks: a surface in the region of interest, and a background outside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from data.prepare.stereo.fused_depth import FusedDepth, fused_depth
from data.rays import Rays
from data.scenes.scene import Posed, Scene
from models.config.blocks import TrainConfig
from models.estimators.background import ContractedBackground, MergedBackground
from models.estimators.batch import PackedBatch, Placed
from models.estimators.conf import OpenConfig, PackedConfig
from models.estimators.occupancy import middles
from models.estimators.packed import MOST_LOST, VIEW_BUDGET
from models.estimators.packed_surface import SurfaceOccupancyEstimator
from models.estimators.seen_space import SeenSpace, boundary_faces, rays_of_views
from models.estimators.visibility import ALL, LEAST_WEIGHT, Visibility, above, lost_share, opacities
from models.fields.grids import GridField, SDFGrid
from models.fields.protocol import DistanceField
from models.fields.sdf import SingleVarianceNetwork
from models.machine.backend import jt
from models.ops.march import PackedSamples, compact, merged_order
from models.plan import DEPTH_MAPS, TrainingPlan
from models.structs import RaySamples, Var

FITTED = 8192  # points per step of the fit to fused depth, half of them on the surface
# With fused depth, the initial surface is known to about a hundredth of the radius.
FIRST_INV_S = 60.0


class OpenSurfaceEstimator(SurfaceOccupancyEstimator):
    """A surface whose rays go on into the background; hidden samples of both are skipped."""

    skips_hidden = True
    background: ContractedBackground

    def __init__(
        self,
        conf: PackedConfig,
        cells: OpenConfig,
        train: TrainConfig,
        plan: TrainingPlan,
        sdf: DistanceField,
        sharpness: SingleVarianceNetwork,
        background: ContractedBackground,
    ) -> None:
        super().__init__(conf, cells, train, plan, sdf, sharpness, 0.0)
        self.background, self.most_beyond = background, cells.samples
        self._open, self._is_pruning = cells, False
        self._cavities: np.ndarray | None = None  # of the current field, computed at first use
        self._scene: Scene | None = None
        self._views: Posed | None = None

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The networks of the background, by their names in checkpoints."""
        return self.background.networks

    def see(self, views: Posed) -> None:
        """See `Estimator.see`."""
        super().see(views)
        self._views, self.background.grid.near_plane = views, self.grid.near_plane

    def fit(self, scene: Scene) -> None:
        """See `SurfaceOccupancyEstimator.fit`; also initialises the background."""
        self._scene = scene
        super().fit(scene)
        self.background.fit(scene)
        self.points = self._chosen_points(0, self.plan.depth)

    @cached_property
    def depth(self) -> FusedDepth | None:
        """The fused depth that the surface starts from, computed again after a resume; None if it does not."""
        if self.plan.start.value != DEPTH_MAPS or self._scene is None:
            return None
        return self.plan.depth or fused_depth(self._scene)

    def begin(self) -> None:
        """See `Estimator.begin`: start from fused depth maps, if the plan says so."""
        fused, sdf = self.depth, self._sdf
        if fused is None or not isinstance(sdf, SDFGrid):
            return
        generator, plan = np.random.default_rng(0), self.plan

        def draw() -> tuple[np.ndarray, np.ndarray]:
            on_surface = fused.points[generator.integers(len(fused.points), size=FITTED // 2)]
            anywhere = self.grid.random_points(FITTED // 2, generator)
            distances = fused.distances(anywhere)
            if plan.is_interior:  # also where no wall has a depth
                distances = np.minimum(distances, plan.radius - np.linalg.norm(anywhere, axis=1, keepdims=True))
            return np.concatenate([on_surface, anywhere]), np.concatenate([np.zeros_like(distances), distances])

        sdf.begin_with(draw, self.conf.first_levels)
        self._sharpness.reset(FIRST_INV_S)

    def before_step(self, step: int) -> None:
        """See `SurfaceOccupancyEstimator.before_step`; also updates the cells of the background."""
        super().before_step(step)
        if step > 0 and step % self.conf.prune_every == 0:
            self.background.update()
        self._cavities = None
        self._is_pruning = step >= self.first_pruning

    def _points_at(self, step: int) -> np.ndarray | None:
        return self._chosen_points(step, self.depth if step < self._open.depth_until * self._train.end_iter else None)

    def _chosen_points(self, step: int, depth: FusedDepth | None) -> np.ndarray | None:
        """The points of depth maps first, SfM points later."""
        return depth.points if depth is not None and self._train.points_weight > 0 else self._scene_points

    def _leveled(self) -> list[GridField]:
        return [*super()._leveled(), self.background.density]

    def resolving_step(self) -> float:
        """At least `open.blur_step` / inv_s, since a finer step only reduces the number of rays."""
        conf = self.conf
        return min(conf.first_step, max(conf.last_step, self._open.blur_step / self._inv_s()))

    @property
    def least_weight(self) -> float:
        """Samples of negligible weight are skipped once cells are pruned, and always with a uniform backdrop."""
        return LEAST_WEIGHT if self._is_pruning or self.background.is_plain else ALL

    def _visible(self, batch: PackedBatch, found: PackedSamples) -> tuple[PackedSamples, PackedSamples, Var]:
        transmits, weights = self.visibility(found, float(batch.step[0]))
        near = compact(found, above(weights, self.least_weight), int(batch.sizes[2]))
        far, asked = self.background.place(batch.rays, batch.jitter, transmits, *batch.sizes[3:].tolist())
        last = jt.minimum(near.kept, far.kept)
        return _up_to(near, last), _up_to(far, last), asked

    def _sampled(self, placed: Placed, step: float) -> RaySamples:
        """Samples at distance `step`, with opacities and colours of the background."""
        (near, far, _), samples = placed, super()._sampled(placed, step)
        if far is None:
            return samples
        alpha, rgb = self.background.evaluate(far.points, far.directions)
        (place, sample), both = merged_order(near, far), near.offsets + far.offsets
        return replace(samples, background=MergedBackground(alpha, rgb, place, sample, both, near.rays.shape[0]))

    def _shown(self, near: PackedSamples, rays: Rays, seen: Visibility) -> tuple[Placed, int]:
        traversed = near.offsets.shape[0] - 1
        far = self.background.shown(rays.at(slice(0, traversed)), middles(traversed), seen[0], VIEW_BUDGET)
        return (_up_to(near, far.kept), far, None), int(far.kept.item())

    def prune(self) -> None:
        """See `SurfaceOccupancyEstimator.prune`. The cells are unchanged if too many probe rays would lose the surface,
        because the field is not a distance yet.
        """
        before, seen = self.grid.cells, self.probe_opacities()
        super().prune()
        if lost_share(seen, self.probe_opacities()) > MOST_LOST:
            self.grid.set(before)

    def probe_opacities(self) -> np.ndarray:
        """Opacity [R] of the region along the probe rays."""
        probes = None if self._sampler is None else self._sampler.probes
        if probes is None:
            return np.zeros(0, np.float32)
        with jt.no_grad():
            return opacities(self.grid, probes, self._sdf.at_weights().distance, self._sharpness())

    def extracted(self, points: np.ndarray) -> np.ndarray:
        """See `SurfaceOccupancyEstimator.extracted`. It is negative in closed cavities, too. A surface that continues
        outside the sphere is cut by a smooth surface instead of cell faces.
        """
        sdf = super().extracted(points)
        is_cavity = self._in_cavities(points)
        sdf[is_cavity] = -np.abs(sdf[is_cavity])
        cut = np.linalg.norm(points, axis=1, keepdims=True) - (1.0 - self.grid.side)
        return np.maximum(sdf, cut).astype(np.float32)

    def seen_space(self, spacing: float) -> SeenSpace | None:
        """The space that cameras see, for a mesh of grid points at distance `spacing` of which only the seen parts are
        kept. Behind a wall, where no ray trains the field, its surface may have several times the triangles of the seen
        one. None if the surface is smaller than the boundary of this space, or the grid coarser than its cells.
        """
        if self._views is None or spacing > self.grid.side:
            return None
        rays = rays_of_views(self._views, self.grid.side)
        distances = self._cell_distances()
        space, is_inside = SeenSpace(self.grid, distances < -self._reach, rays), distances < 0
        return space if boundary_faces(is_inside & space.cells) < boundary_faces(is_inside) else None

    def _in_cavities(self, points: np.ndarray) -> np.ndarray:
        """Which points [P, 3] are in cells that a closed surface separates from all cameras: bool [P]."""
        if self._cavities is None:
            self._cavities = self.grid.closed_off(self._cell_distances() < -self._reach)
        return self._cavities[self.grid.indices(points)]

    def _cell_distances(self) -> np.ndarray:
        """The signed distance of the field at the cell centres, infinite outside the hull: float32 [N, N, N]."""
        distances = np.full(self.grid.hull.shape, np.inf, np.float32)
        distances[self.grid.hull] = self._hull_distances(self._reach)
        return distances

    def behind(self, background_rgb: np.ndarray | None) -> np.ndarray:
        """The colour of a plain backdrop, else black."""
        return self.background.sky

    def buffers(self) -> dict[str, np.ndarray]:
        """See `OccupancyEstimator.buffers`, and those of the background."""
        return self.background.buffers() | super().buffers()

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """See `OccupancyEstimator.load_buffers`."""
        super().load_buffers(buffers)
        self.background.load_buffers(buffers)
        self._cavities = None


def _up_to(found: PackedSamples, count: Var) -> PackedSamples:
    """Keep only the samples of the first rays; `count` int32 [1] is their number."""
    return replace(found, offsets=jt.minimum(found.offsets, found.offsets[count]).stop_grad(), kept=count)
