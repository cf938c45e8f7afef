"""Occupancy sampling of a surface: cells near its zero level set are occupied; the estimator inside masks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from data.parsed_scene import training_points
from data.rays import Rays
from data.scenes.scene import Scene
from data.scenes.sparse import well_supported
from models.estimators.conf import InsideConfig
from models.estimators.occupancy import SeenSpace
from models.estimators.packed import PackedBatch, PackedEstimator, samples_at
from models.estimators.schedule import SamplingSchedule
from models.estimators.visibility import surface_weights, visible_samples
from models.fields.protocol import LARGEST_SLOPE, Leveled, SurfaceFields
from models.machine.backend import jt
from models.ops.march import SOLID, PackedSamples
from models.plan import NONE, TrainingPlan
from models.structs import MASK_THRESHOLD, Array, RaySamples, Var

ViewSamples = tuple[RaySamples, np.ndarray, int]  # visible samples of an image, their rows, and number of their rays
CELL_HALF_DIAGONAL = 0.5 * 3**0.5  # in edge lengths of a cell


class SurfaceEstimator(PackedEstimator):
    """A surface in occupied cells: those within a band around it, whose width shrinks with 1 / inv_s."""

    def __init__(
        self,
        schedule: SamplingSchedule,
        plan: TrainingPlan,
        fields: SurfaceFields,
        band: float,
        *others: Leveled,
        background_samples: int = 0,
    ) -> None:
        """`band`: half the width of the band, in 1 / inv_s; cells farther from the surface are empty or solid.

        others: further fields with levels; `background_samples`: maximum number.
        """
        super().__init__(schedule, plan, [fields.sdf, *others], background_samples)
        self._sdf, self._sharpness, self._band = fields.sdf, fields.sharpness, band

    # what a subclass defines

    def see_view(self, rays: Rays, traversed: PackedSamples, weights: Var, transmittance: Var) -> ViewSamples:
        """The visible ones of an image's samples, which have these weights [S, 1] on rays with this transmittance
        [R, 1]; waits for the device.
        """
        raise NotImplementedError

    def free_rays(self, batch: PackedBatch) -> Array | None:
        """Whether each ray passes beside the object, bool [R]; None if that is not known."""
        raise NotImplementedError

    def seen_space(self, spacing: float) -> SeenSpace | None:
        """See `LevelSet`; None where masks bound the mesh."""
        return None

    # the field

    def sfm_points(self, scene: Scene) -> np.ndarray | None:
        """The well supported SfM points in the hull, float32 [P, 3]; None if there are none, or the plan uses none."""
        if scene.points is None or self.plan.points.value == NONE:
            return None
        xyz = well_supported(training_points(scene.points)).astype(np.float32)
        xyz = xyz[self.grid.hull[self.grid.indices(xyz)] & (np.abs(xyz).max(axis=1) < 1)]
        return xyz if len(xyz) else None

    # cells

    def prune(self) -> None:
        """Mark cells outside the band around the surface as empty or solid."""
        reach = self.reach + self._band / self.inv_s()
        sdf = self.hull_distances(reach)
        self.grid.update(sdf > reach, sdf < -reach)

    def weights(self, samples: PackedSamples, step_size: float) -> tuple[Var, Var]:
        """See `surface_weights`."""
        with jt.no_grad():
            return surface_weights(samples, self._sdf.bind().distance(samples.points), self._sharpness(), step_size)

    def inv_s(self) -> float:
        """The current inv_s; waits for the device."""
        with jt.no_grad():
            return float(self._sharpness().item())

    def distances(self, points: np.ndarray) -> np.ndarray:
        """Signed distances [P, 1] of the field at points [P, 3], unmodified."""
        with jt.no_grad():
            return self._sdf.bind().distance(jt.array(points)).numpy()

    @property
    def outward(self) -> Callable[[np.ndarray], np.ndarray]:
        """The field of a mesh, see `LevelSet`."""
        return self.trained_distances

    def trained_distances(self, points: np.ndarray) -> np.ndarray:
        """Signed distances [P, 1] for mesh extraction at points [P, 3]: those of the field where it is trained.

        Outside the hull the value is at least the distance to the hull. In solid cells, which no ray reaches and which
        may contain spurious zero crossings, it is negative.
        """
        sdf, grid = self.distances(points), self.grid
        at = grid.indices(points)
        outside, is_solid = ~grid.hull[at], grid.cells[at] == SOLID
        sdf[outside] = np.maximum(sdf[outside], grid.to_hull(points[outside]))
        sdf[is_solid] = np.minimum(sdf[is_solid], -grid.side)
        return sdf.astype(np.float32)

    @property
    def reach(self) -> float:
        """Half the diagonal of a cell: with less than minus this at its centre, all of it is inside the surface, if the
        gradient norm of the signed distance is 1.
        """
        return self.grid.side * CELL_HALF_DIAGONAL

    def hull_distances(self, reach: float) -> np.ndarray:
        """The signed distances of the field at the centres of the hull's cells, [P].

        A cell that is farther than `reach` from the surface according to the centre of its block has the value there.
        """
        grid = self.grid
        centres, block = grid.blocks()
        distances = self.distances(centres)[block, 0]
        is_near = (
            np.abs(distances) <= reach + LARGEST_SLOPE * self.reach
        )  # which also is the distance of the two centres
        if is_near.any():
            distances[is_near] = self.distances(grid.centres(is_near))[:, 0]
        return distances


class SurfaceOccupancyEstimator(SurfaceEstimator):
    """A surface inside masks; all samples in occupied cells are evaluated."""

    has_hidden = False

    def __init__(
        self, schedule: SamplingSchedule, plan: TrainingPlan, fields: SurfaceFields, conf: InsideConfig
    ) -> None:
        super().__init__(schedule, plan, fields, conf.shell)
        self._margin = conf.hull_margin

    def initialise(self, scene: Scene) -> None:
        """Take hull and SfM points of a scene."""
        self.carve(scene, self._margin)
        self.see(scene)
        self.points = self.sfm_points(scene)

    def before_step(self, step: int) -> None:
        """See `PackedEstimator.before_step`.

        Each step begins with an inv_s of at most `plan.largest_inv_s` / `last_step`. Of a sharper surface, a single
        sample has the colour of a ray, wherever in its step it is, and few samples are near enough to the surface to
        move it.
        """
        if (bound := self.plan.largest_inv_s.value) is not None:
            self._sharpness.limit(bound / self.conf.last_step)
        super().before_step(step)

    def free_rays(self, batch: PackedBatch) -> Array | None:
        """Rays outside the masks."""
        return None if batch.mask is None else batch.mask[:, 0] <= MASK_THRESHOLD

    def see_view(self, rays: Rays, traversed: PackedSamples, weights: Var, transmittance: Var) -> ViewSamples:
        """See `SurfaceEstimator.see_view`."""
        region, rows = visible_samples(traversed, weights)
        return samples_at(region, self.resolving_step_size()), rows, region.offsets.shape[0] - 1
