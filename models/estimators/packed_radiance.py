"""Occupancy sampling of a density: cells that are found empty in several consecutive updates are pruned."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from data.rays import Rays
from data.scenes.scene import Scene
from models.estimators.budget import Sizes
from models.estimators.conf import RadianceConfig
from models.estimators.occupancy import EmptyCells
from models.estimators.packed import PackedEstimator, Visible, samples_at
from models.estimators.schedule import SamplingSchedule
from models.estimators.visibility import REACHED, above, floored, visible_samples
from models.fields.protocol import RadianceField
from models.machine.backend import jt
from models.ops.march import PackedSamples, compact
from models.ops.volrend import alpha_from_density, weights_from_alpha
from models.plan import TrainingPlan
from models.structs import Array, RaySamples, Var


class RadianceOccupancyEstimator(PackedEstimator):
    """Cells are pruned by opacity; samples with negligible transmittance are skipped."""

    def __init__(
        self, schedule: SamplingSchedule, plan: TrainingPlan, field: RadianceField, conf: RadianceConfig
    ) -> None:
        super().__init__(schedule, plan, field.leveled)
        self._margin = conf.hull_margin
        self.empty_cells = EmptyCells(self.grid, conf.threshold, f"model.{conf.block}.cells")
        self._field = field

    def initialise(self, scene: Scene) -> None:
        """Take the hull of the masks, and the cameras."""
        self.carve(scene, self._margin)
        self.see(scene)

    def visible(self, traversed: PackedSamples, rays: Rays, jitter: Array, step_size: float, sizes: Sizes) -> Visible:
        """The samples that light reaches."""
        return Visible(compact(traversed, above(self._weights(traversed, step_size), REACHED), sizes.visible))

    def before_step(self, step: int) -> None:
        """See `PackedEstimator.before_step`."""
        super().before_step(step)
        if step < self.pruner.first_step:
            self.empty_cells.forget()

    def prune(self) -> None:
        """Evaluate some cells and mark those without opacity as empty."""
        side = self.grid.side
        self.empty_cells.update(lambda points: 1.0 - np.exp(-self.extracted(points)[:, 0] * side))

    def view_samples(self, rays: Rays) -> tuple[RaySamples, int]:
        """The visible samples of the first rays of an image, and the number of these rays; waits for the device."""
        step_size = self.resolving_step_size()
        traversed = self.march_view(rays, step_size)
        region, _ = visible_samples(traversed, self._weights(traversed, step_size))
        return samples_at(region, step_size), region.offsets.shape[0] - 1

    def _weights(self, samples: PackedSamples, step_size: float) -> Var:
        with jt.no_grad():
            alpha = alpha_from_density(self._field.density(samples.points), step_size)
            return weights_from_alpha(floored(alpha), samples.offsets)[0]

    def extracted(self, points: np.ndarray) -> np.ndarray:
        """Density [P, 1] at points [P, 3]; 0 outside the hull."""
        with jt.no_grad():
            density = self._field.density(jt.array(points)).numpy()
        density[~self.grid.hull[self.grid.indices(points)]] = 0.0
        return density

    def buffers(self) -> dict[str, np.ndarray]:
        """The cells, and how often each was found empty."""
        return super().buffers() | self.empty_cells.buffers()

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        super().load_buffers(buffers)
        self.empty_cells.load_buffers(buffers)
