"""Occupancy sampling of a density: cells that are found empty in several consecutive updates are pruned."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.config.blocks import TrainConfig
from models.estimators.conf import RadianceConfig
from models.estimators.occupancy import EmptyCells
from models.estimators.packed import OccupancyEstimator
from models.estimators.visibility import Visibility, density_visibility
from models.fields.grids import GridField
from models.fields.protocol import RadianceField
from models.machine.backend import jt
from models.ops.march import PackedSamples
from models.ops.volrend import alpha_from_density
from models.plan import TrainingPlan


class RadianceOccupancyEstimator(OccupancyEstimator):
    """Cells are pruned by opacity; samples with negligible transmittance are skipped."""

    skips_hidden = True

    def __init__(self, conf: RadianceConfig, train: TrainConfig, plan: TrainingPlan, field: RadianceField) -> None:
        grids = [part for part in field.networks.values() if isinstance(part, GridField)]
        super().__init__(conf, train, plan, conf.hull_margin, grids)
        self._field = field
        self.empty_cells = EmptyCells(self.grid, conf.threshold)

    def prune(self) -> None:
        """Evaluate some cells and mark those without opacity as empty."""
        self.empty_cells.update(lambda points, side: 1.0 - np.exp(-self.extracted(points)[:, 0] * side))

    def _reopen(self) -> None:
        super()._reopen()
        self.empty_cells.forget()

    def visibility(self, found: PackedSamples, step: float) -> Visibility:
        """Visibility by the opacities."""
        with jt.no_grad():
            alpha = alpha_from_density(self._field.density(found.points), step)
            return density_visibility(alpha, found.offsets)

    def extracted(self, points: np.ndarray) -> np.ndarray:
        """Density [P, 1] at points [P, 3]; 0 outside the hull."""
        with jt.no_grad():
            density = self._field.density(jt.array(points)).numpy()
        density[self._is_outside(points)] = 0.0
        return density

    def buffers(self) -> dict[str, np.ndarray]:
        """The buffers of the base class, and the counts of empty updates."""
        return super().buffers() | self.empty_cells.buffers()

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        super().load_buffers(buffers)
        self.empty_cells.load_buffers(buffers)
