"""Occupancy sampling of a signed-distance field: cells near its zero level set are occupied."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from data.parsed_scene import training_points
from data.scenes.scene import Scene
from data.scenes.sparse import well_supported
from models.config.blocks import TrainConfig
from models.estimators.background import ContractedBackground
from models.estimators.conf import InsideConfig, OpenConfig, PackedConfig
from models.estimators.packed import OccupancyEstimator
from models.estimators.seen_space import SeenSpace
from models.estimators.visibility import Visibility, surface_visibility
from models.fields.grids import GridField, SDFGrid
from models.fields.protocol import STEEPEST, DistanceField
from models.fields.sdf import SingleVarianceNetwork
from models.machine.backend import jt
from models.ops.march import SOLID, PackedSamples
from models.plan import NONE, TrainingPlan

CELL_HALF_DIAGONAL = 0.5 * 3**0.5  # in edge lengths of a cell


class SurfaceOccupancyEstimator(OccupancyEstimator):
    """The cells within a band around the surface, whose width shrinks with 1 / inv_s."""

    seen_space: Callable[[float], SeenSpace | None] | None = None  # see `LevelSet`; none where masks bound the mesh
    conf: PackedConfig
    background: ContractedBackground | None = None

    def __init__(
        self,
        conf: PackedConfig,
        cells: InsideConfig | OpenConfig,
        train: TrainConfig,
        plan: TrainingPlan,
        sdf: DistanceField,
        sharpness: SingleVarianceNetwork,
        hull_margin: float,
    ) -> None:
        super().__init__(conf, train, plan, hull_margin, [sdf] if isinstance(sdf, GridField) else [])
        self._cells_conf, self._sdf, self._sharpness = cells, sdf, sharpness
        self._scene_points: np.ndarray | None = None

    def fit(self, scene: Scene) -> None:
        """See `OccupancyEstimator.fit`; also sets the initial sphere of a grid, and selects the SfM points in the hull
        if they are used in training.
        """
        super().fit(scene)
        plan = self.plan
        if isinstance(self._sdf, SDFGrid) and (plan.is_interior or plan.radius != self._sdf.conf.radius):
            self._sdf.begin_with_sphere(plan.radius, is_inverted=plan.is_interior)
        if plan.points.value != NONE and scene.points is not None:
            xyz = well_supported(training_points(scene.points)).astype(np.float32)
            xyz = xyz[~self._is_outside(xyz) & (np.abs(xyz).max(axis=1) < 1)]
            self._scene_points = xyz if len(xyz) else None
        self.points = self._scene_points

    def compare_patches(self, most: int | None) -> None:
        """Set the maximum number of rays per batch whose patches are compared; None disables the comparison."""
        self.most_compared = most

    def before_step(self, step: int) -> None:
        """See `OccupancyEstimator.before_step`.

        Each step begins with an inv_s of at most `plan.largest_inv_s` / `last_step`. Of a sharper surface, a single
        sample has the colour of a ray, wherever in its step it is, and few samples are near enough to the surface to
        move it.
        """
        if self.plan.largest_inv_s.value is not None:
            self._sharpness.limit(self.plan.largest_inv_s.value / self.conf.last_step)
        super().before_step(step)
        self.points = self._points_at(step)

    def _points_at(self, step: int) -> np.ndarray | None:
        """The SfM points used at this step."""
        del step
        return self._scene_points

    def prune(self) -> None:
        """Mark cells outside the band around the surface as empty or solid."""
        reach = self._reach + self._cells_conf.shell / self._inv_s()
        sdf = self._hull_distances(reach)
        self.grid.update(sdf > reach, sdf < -reach)

    def visibility(self, found: PackedSamples, step: float) -> Visibility:
        """Visibility by the signed distances."""
        with jt.no_grad():
            return surface_visibility(found, self._sdf.at_weights().distance(found.points), self._sharpness(), step)

    def _inv_s(self) -> float:
        with jt.no_grad():
            return float(self._sharpness().item())

    def trained(self, points: np.ndarray) -> np.ndarray:
        """Signed distances [P, 1] of the field at points [P, 3], unmodified."""
        with jt.no_grad():
            return self._sdf.at_weights().distance(jt.array(points)).numpy()

    def extracted(self, points: np.ndarray) -> np.ndarray:
        """Signed distances [P, 1] for mesh extraction at points [P, 3]: those of the field where it is trained.

        Outside the hull the value is at least the distance to the hull. In solid cells, which no ray reaches and which
        may contain spurious zero crossings, it is negative.
        """
        sdf = self.trained(points)
        outside = self._is_outside(points)
        sdf[outside] = np.maximum(sdf[outside], self.grid.to_hull(points[outside]))
        is_solid = self.grid.at(points) == SOLID
        sdf[is_solid] = np.minimum(sdf[is_solid], -self.grid.side)
        return sdf.astype(np.float32)

    @property
    def _reach(self) -> float:
        """Half the diagonal of a cell: with less than minus this at its centre, all of it is inside the surface, if the
        gradient norm of the signed distance is 1.
        """
        return self.grid.side * CELL_HALF_DIAGONAL

    def _hull_distances(self, reach: float) -> np.ndarray:
        """The signed distances of the field at the centres of the hull's cells, [P].

        A cell that is farther than `reach` from the surface according to the centre of its block has the value there.
        """
        centres, block = self.grid.blocks()
        distances = self.trained(centres)[block, 0]
        is_near = np.abs(distances) <= reach + STEEPEST * self._reach  # which also is the distance of the two centres
        if is_near.any():
            distances[is_near] = self.trained(self.grid.centres(is_near))[:, 0]
        return distances
