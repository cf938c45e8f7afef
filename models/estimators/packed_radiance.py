"""Occupancy sampling of a density: cells that are found empty in several consecutive updates are pruned."""

from __future__ import annotations

import numpy as np

from data.rays import Rays
from data.scenes.scene import Scene
from models.estimators import packed
from models.estimators.conf import RadianceConfig
from models.estimators.occupancy import EmptyCells
from models.estimators.packed import PackedEstimator, Region
from models.estimators.sampler import PackedBatch, PackedSampler, Seen, Sizes
from models.fields.protocol import RadianceField
from models.machine.backend import jt
from models.ops.march import PackedSamples, compact
from models.ops.volrend import alpha_from_density
from models.structs import Array, RaySamples, Var


class RadianceOccupancyEstimator(PackedEstimator):
    """Cells are pruned by opacity; samples with negligible transmittance are skipped."""

    def __init__(self, conf: RadianceConfig, region: Region, field: RadianceField) -> None:
        self.empty_cells = EmptyCells(region.grid, conf.threshold, f"model.{conf.block}.cells")
        super().__init__(region, self.empty_cells)
        self._conf, self._field = conf, field

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PackedSampler:
        """Batches of rays that may cross the hull of the masks; initialises a training."""
        self.region.carve(scene, self._conf.hull_margin)
        self.region.see(scene)
        return PackedSampler(scene, self.region, batch_size, generator, self._visible)

    def sample(self, batch: PackedBatch, *unused: object) -> RaySamples:
        """The samples of a batch."""
        return packed.samples_at(batch.near, batch.step)

    def _visible(self, found: PackedSamples, rays: Rays, jitter: Array, step: float, sizes: Sizes) -> Seen:
        return compact(found, packed.above(self._weights(found, step), packed.REACHED), sizes.near), None, None

    def before_step(self, step: int) -> None:
        """See `Region.before_step`."""
        self.region.before_step(step, self.prune, lambda: self._conf.last_step)
        if step < self.region.first_pruning:
            self.empty_cells.forget()

    def prune(self) -> None:
        """Evaluate some cells and mark those without opacity as empty."""
        side = self.region.grid.side
        self.empty_cells.update(lambda points: 1.0 - np.exp(-self.extracted(points)[:, 0] * side))

    def view_samples(self, rays: Rays) -> tuple[RaySamples, int]:
        """The visible samples of the first rays of an image, and the number of these rays; waits for the device."""
        step = self._conf.last_step
        found = self.region.march_view(rays, step)
        near, _ = packed.visible_of(found, self._weights(found, step))
        return packed.samples_at(near, step), near.offsets.shape[0] - 1

    def _weights(self, found: PackedSamples, step: float) -> Var:
        with jt.no_grad():
            alpha = alpha_from_density(self._field.density(found.points), step)
            return packed.density_weights(alpha, found.offsets)

    def extracted(self, points: np.ndarray) -> np.ndarray:
        """Density [P, 1] at points [P, 3]; 0 outside the hull."""
        with jt.no_grad():
            density = self._field.density(jt.array(points)).numpy()
        density[~self.region.grid.hull[self.region.grid.indices(points)]] = 0.0
        return density
