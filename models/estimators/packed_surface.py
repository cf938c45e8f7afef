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
from models.estimators.packed import PackedEstimator, Region, Shown, samples_at, surface_weights, visible_of
from models.estimators.sampler import PackedBatch, PackedSampler
from models.fields.protocol import STEEPEST, DistanceField
from models.fields.sdf import SingleVarianceNetwork
from models.machine.backend import jt
from models.ops.march import SOLID, PackedSamples
from models.plan import NONE
from models.structs import MASK_THRESHOLD, Array, RaySamples, Var

CELL_HALF_DIAGONAL = 0.5 * 3**0.5  # in edge lengths of a cell


class SurfaceCells:
    """The cells within a band around the surface, whose width shrinks with 1 / inv_s, and the field in them."""

    def __init__(self, region: Region, sdf: DistanceField, sharpness: SingleVarianceNetwork, shell: float) -> None:
        """`shell`: half the width of the band, in 1 / inv_s; cells farther from the surface are empty or solid."""
        self._region, self.sdf, self.sharpness, self._shell = region, sdf, sharpness, shell
        self.points: np.ndarray | None = None  # SfM points in the hull, if they are used in training

    def fit(self, scene: Scene) -> None:
        """Select the SfM points in the hull, if they are used in training."""
        region = self._region
        if region.plan.points.value != NONE and scene.points is not None:
            xyz = well_supported(training_points(scene.points)).astype(np.float32)
            xyz = xyz[region.grid.hull[region.grid.indices(xyz)] & (np.abs(xyz).max(axis=1) < 1)]
            self.points = xyz if len(xyz) else None
        region.points = self.points

    def prune(self) -> None:
        """Mark cells outside the band around the surface as empty or solid."""
        reach = self.reach + self._shell / self.inv_s()
        sdf = self.hull_distances(reach)
        self._region.grid.update(sdf > reach, sdf < -reach)

    def weights(self, found: PackedSamples, step: float) -> tuple[Var, Var]:
        """See `surface_weights`."""
        with jt.no_grad():
            return surface_weights(found, self.sdf.at_weights().distance(found.points), self.sharpness(), step)

    def inv_s(self) -> float:
        """The current inv_s; waits for the device."""
        with jt.no_grad():
            return float(self.sharpness().item())

    def distances(self, points: np.ndarray) -> np.ndarray:
        """Signed distances [P, 1] of the field at points [P, 3], unmodified."""
        with jt.no_grad():
            return self.sdf.at_weights().distance(jt.array(points)).numpy()

    def extracted(self, points: np.ndarray) -> np.ndarray:
        """Signed distances [P, 1] for mesh extraction at points [P, 3]: those of the field where it is trained.

        Outside the hull the value is at least the distance to the hull. In solid cells, which no ray reaches and which
        may contain spurious zero crossings, it is negative.
        """
        sdf, grid = self.distances(points), self._region.grid
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
        return self._region.grid.side * CELL_HALF_DIAGONAL

    def hull_distances(self, reach: float) -> np.ndarray:
        """The signed distances of the field at the centres of the hull's cells, [P].

        A cell that is farther than `reach` from the surface according to the centre of its block has the value there.
        """
        grid = self._region.grid
        centres, block = grid.blocks()
        distances = self.distances(centres)[block, 0]
        is_near = np.abs(distances) <= reach + STEEPEST * self.reach  # which also is the distance of the two centres
        if is_near.any():
            distances[is_near] = self.distances(grid.centres(is_near))[:, 0]
        return distances


class SurfaceOccupancyEstimator(PackedEstimator):
    """A surface inside masks; all samples in occupied cells are evaluated."""

    seen_space: Callable[[float], SeenSpace | None] | None = None  # see `LevelSet`; masks bound the mesh

    def __init__(self, conf: InsideConfig, region: Region, surface: SurfaceCells) -> None:
        super().__init__(region)
        self._conf, self.surface = conf, surface

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PackedSampler:
        """Batches of rays that may cross the hull of the masks; initialises a training."""
        self.region.carve(scene, self._conf.hull_margin)
        self.region.see(scene)
        self.surface.fit(scene)
        return PackedSampler(scene, self.region, batch_size, generator)

    def sample(self, batch: PackedBatch, *unused: object) -> RaySamples:
        """The samples of a batch."""
        return samples_at(batch.near, batch.step)

    def before_step(self, step: int) -> None:
        """See `Region.before_step`.

        Each step begins with an inv_s of at most `plan.largest_inv_s` / `last_step`. Of a sharper surface, a single
        sample has the colour of a ray, wherever in its step it is, and few samples are near enough to the surface to
        move it.
        """
        bound = self.region.plan.largest_inv_s.value
        if bound is not None:
            self.surface.sharpness.limit(bound / self.region.conf.last_step)
        self.region.before_step(step, self.surface.prune, self.resolving_step)

    def resolving_step(self) -> float:
        """The step size that resolves the current field, used for images."""
        return self.region.conf.last_step

    def free_rays(self, batch: PackedBatch) -> Array | None:
        """Whether each ray passes beside the object according to its mask, bool [R]; None without masks."""
        return None if batch.mask is None else batch.mask[:, 0] <= MASK_THRESHOLD

    def view_samples(self, rays: Rays, found: PackedSamples, seen: tuple[Var, Var]) -> Shown:
        """The visible ones of an image's samples, from weights and transmittance; waits for the device."""
        del rays
        near, rows = visible_of(found, seen[0])
        return samples_at(near, self.resolving_step()), rows, near.offsets.shape[0] - 1

    @property
    def extracted(self) -> Callable[[np.ndarray], np.ndarray]:
        """See `SurfaceCells.extracted`."""
        return self.surface.extracted
