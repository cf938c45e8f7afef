"""Occupancy sampling without masks: a surface in the region of interest, and a background outside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import cast

import numpy as np

from data.rays import Rays
from data.scenes.scene import Scene
from models.estimators import packed
from models.estimators.background import ContractedBackground, MergedBackground
from models.estimators.conf import OpenConfig
from models.estimators.occupancy import SeenSpace, boundary_faces, middles, rays_of_views
from models.estimators.packed import PackedEstimator, Region
from models.estimators.packed_surface import SurfaceCells
from models.estimators.sampler import PackedBatch, PackedSampler, Seen, Sizes
from models.fields.grids import SDFGrid
from models.machine.backend import jt
from models.ops.march import PackedSamples, compact, merged_order
from models.plan import FusedDepth
from models.structs import Array, RaySamples, Var

FITTED = 8192  # points per step of the fit to fused depth, half of them on the surface
# With fused depth, the initial surface is known to about a hundredth of the radius.
FIRST_INV_S = 60.0


class OpenSurfaceEstimator(PackedEstimator):
    """A surface whose rays go on into the background; hidden samples of both are skipped."""

    def __init__(
        self, conf: OpenConfig, region: Region, surface: SurfaceCells, background: ContractedBackground
    ) -> None:
        super().__init__(region, background, background.empty_cells)
        self._conf, self.surface, self.background, region.backdrop = conf, surface, background, background.sky
        self._is_pruning, region.beyond = False, conf.samples

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The networks of the background, by their names in checkpoints."""
        return {"background_density": self.background.density, "background_color": self.background.color}

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PackedSampler:
        """Batches of rays of all pixels; initialises a training."""
        region = self.region
        for part in self.parts:
            part.see(scene)
        self.surface.fit(scene)
        region.points = self._points(region.plan.depth)
        return PackedSampler(scene, region, batch_size, generator, self._visible)

    def begin(self) -> None:
        """See `Estimator.begin`: start from fused depth maps, if the plan says so."""
        generator, plan = np.random.default_rng(0), self.region.plan
        if (fused := plan.depth) is None:
            return

        def draw() -> tuple[np.ndarray, np.ndarray]:
            on_surface = fused.points[generator.integers(len(fused.points), size=FITTED // 2)]
            anywhere = self.region.grid.random_points(FITTED // 2, generator)
            distances = fused.distances(anywhere)
            if plan.is_interior:  # also where no wall has a depth
                distances = np.minimum(distances, plan.radius - np.linalg.norm(anywhere, axis=1, keepdims=True))
            return np.concatenate([on_surface, anywhere]), np.concatenate([np.zeros_like(distances), distances])

        sdf = cast(SDFGrid, self.surface.sdf)  # other fields start from a sphere
        sdf.begin_with(draw, self.region.conf.first_levels)
        self.surface.sharpness.reset(FIRST_INV_S)

    def before_step(self, step: int) -> None:
        """See `Region.before_step`; also updates the cells of the background, and chooses the points of the step."""
        region = self.region
        region.before_step(step, self.prune, self.resolving_step)
        if region.is_due(step):
            self.background.update()
        self._is_pruning = step >= region.first_pruning
        region.points = self._points(
            region.plan.depth if step < self._conf.depth_until * region.train.end_iter else None
        )

    def _points(self, depth: FusedDepth | None) -> np.ndarray | None:
        """The points of depth maps first, SfM points later."""
        return depth.points if depth is not None and self.region.train.points_weight > 0 else self.surface.points

    def resolving_step(self) -> float:
        """The step size for images: at least `open.blur_step` / inv_s, since a finer one only reduces the number of
        rays.
        """
        conf = self.region.conf
        return min(conf.first_step, max(conf.last_step, self._conf.blur_step / self.surface.inv_s()))

    def free_rays(self, batch: PackedBatch) -> Var | None:
        """Whether each ray has the colour of a plain backdrop, bool [R]; None without one."""
        return self.background.shows_alone(jt.array(batch.rgb)) if self.background.is_plain else None

    def sample(self, batch: PackedBatch, *unused: object) -> RaySamples:
        """The samples of a batch, with opacities and colours of the background."""
        assert batch.far is not None  # `_visible` gives them
        return self._joined(batch.near, batch.far, batch.step)

    def _joined(self, near: PackedSamples, far: PackedSamples, step: float) -> RaySamples:
        alpha, rgb = self.background.evaluate(far.points, far.directions)
        (place, sample), offsets = merged_order(near, far), near.offsets + far.offsets
        merged = MergedBackground(alpha, rgb, place, sample, offsets, near.rays.shape[0])
        return replace(packed.samples_at(near, step), background=merged)

    def _visible(self, found: PackedSamples, rays: Rays, jitter: Array, step: float, sizes: Sizes) -> Seen:
        """Samples of negligible weight are skipped once cells are pruned, and always with a uniform backdrop."""
        weights, transmittance = self.surface.weights(found, step)
        least = packed.LEAST_WEIGHT if self._is_pruning or self.background.is_plain else packed.ALL
        near = compact(found, packed.above(weights, least), sizes.near)
        far, asked = self.background.visible(rays, jitter, packed.passes(transmittance), sizes.asked, sizes.far)
        last = jt.minimum(near.kept, far.kept)
        return _up_to(near, last), _up_to(far, last), asked

    def view_samples(self, rays: Rays, found: PackedSamples, seen: tuple[Var, Var]) -> packed.Shown:
        """The visible ones of an image's samples, from weights and transmittance; waits for the device."""
        near, rows = packed.visible_of(found, seen[0])
        traversed = near.offsets.shape[0] - 1
        some, jitter = rays.at(slice(0, traversed)), middles(traversed)
        far = self.background.samples(some, jitter, packed.passes(seen[1]), packed.VIEW_BUDGET)
        far = far.first(max(1, int(far.offsets[-1:].item())))
        return self._joined(_up_to(near, far.kept), far, self.resolving_step()), rows, int(far.kept.item())

    def prune(self) -> None:
        """See `SurfaceCells.prune`. The cells are unchanged if too many probe rays would lose the surface, because the
        field is not a distance yet.
        """
        before, seen = self.region.grid.cells, self.probe_opacities()
        self.surface.prune()
        if packed.lost_share(seen, self.probe_opacities()) > packed.MOST_LOST:
            self.region.grid.set(before)

    def probe_opacities(self) -> np.ndarray:
        """Opacity [R] of the region along the probe rays, from samples in the current cells."""
        if self.region.probes is None:
            return np.zeros(0, np.float32)
        found = self.region.grid.probe(self.region.probes)
        found = found.first(max(1, int(found.offsets[-1:].item())))
        return 1.0 - self.surface.weights(found, self.region.grid.side)[1].numpy()[:, 0]

    @property
    def extracted(self) -> Callable[[np.ndarray], np.ndarray]:
        """See `SurfaceCells.extracted`. It is negative in closed cavities, too. A surface that continues outside the
        sphere is cut by a smooth surface instead of cell faces.
        """
        grid, surface = self.region.grid, self.surface
        cavities = cache(lambda: grid.closed_off(self._cell_distances() < -surface.reach))

        def extracted(points: np.ndarray) -> np.ndarray:
            sdf = surface.extracted(points)
            is_cavity = cavities()[grid.indices(points)]
            sdf[is_cavity] = -np.abs(sdf[is_cavity])
            cut = np.linalg.norm(points, axis=1, keepdims=True) - (1.0 - grid.side)
            return np.maximum(sdf, cut).astype(np.float32)

        return extracted

    def seen_space(self, spacing: float) -> SeenSpace | None:
        """The space that cameras see, for a mesh of grid points at distance `spacing` of which only the seen parts are
        kept. Behind a wall, where no ray trains the field, its surface may have several times the triangles of the seen
        one. None if the surface is smaller than the boundary of this space, or the grid coarser than its cells.
        """
        grid, views = self.region.grid, self.background.views
        if views is None or spacing > grid.side:
            return None
        distances = self._cell_distances()
        is_inside = distances < 0
        space = SeenSpace(grid, distances < -self.surface.reach, rays_of_views(views, grid.side))
        return space if boundary_faces(is_inside & space.cells) < boundary_faces(is_inside) else None

    def _cell_distances(self) -> np.ndarray:
        """The signed distance of the field at the cell centres, infinite outside the hull: float32 [N, N, N]."""
        distances = np.full(self.region.grid.hull.shape, np.inf, np.float32)
        distances[self.region.grid.hull] = self.surface.hull_distances(self.surface.reach)
        return distances


def _up_to(found: PackedSamples, count: Var) -> PackedSamples:
    """Keep only the samples of the first rays; `count` int32 [1] is their number."""
    return replace(found, offsets=jt.minimum(found.offsets, found.offsets[count]).stop_grad(), kept=count)
