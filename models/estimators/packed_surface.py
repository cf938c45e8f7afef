"""Occupancy sampling of a signed-distance field: cells near its zero level set are occupied."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from data.parsed_scene import training_points
from data.roi.sparse import LEAST_POINTS, well_supported
from data.scenes.scene import LEAST_OUTWARD, Scene, shares_within
from models.estimators.background import ContractedBackground
from models.estimators.conf import PackedConfig
from models.estimators.packed import MOST_LOST, OF_EARLIER_VERSIONS, OccupancyEstimator
from models.estimators.seen_space import RAY_SPACING, SeenSpace, boundary_faces
from models.estimators.visibility import ALL, LEAST_WEIGHT, Visibility, lost_share, opacities, surface_visibility
from models.fields.grid_field import GridField
from models.fields.protocol import STEEPEST, DistanceField
from models.fields.sdf_grid import SDFGrid
from models.fields.sharpness import SingleVarianceNetwork
from models.machine.backend import jt
from models.ops.march import SOLID, PackedSamples

# Radius of the initial sphere of a scene photographed from within. It encloses the cameras and lies in the region.
INTERIOR_RADIUS = 0.9
FITTED = 8192  # points per step of the fit to fused depth, half of them on the surface
# With fused depth, the initial surface is known to about a hundredth of the radius; cells far from it are pruned soon.
FIRST_INV_S, PRUNE_FROM = 60.0, 0.05
CELL_HALF_DIAGONAL = 0.5 * 3**0.5  # in edge lengths of a cell


class SurfaceOccupancyEstimator(OccupancyEstimator):
    """The cells within a band around the surface, whose width shrinks with 1 / inv_s."""

    conf: PackedConfig

    def __init__(
        self,
        conf: PackedConfig,
        end_iter: int,
        carves: bool,
        sdf: DistanceField,
        sharpness: SingleVarianceNetwork,
        background: ContractedBackground | None,
    ) -> None:
        super().__init__(conf, end_iter, carves, [sdf] if isinstance(sdf, GridField) else [], background)
        self._sdf, self._sharpness = sdf, sharpness
        self._scene_points: np.ndarray | None = None
        self.starts_from_depth = False
        self.bounds_inv_s = False  # see `before_step`
        self._is_interior = False  # whether the scene was photographed from within
        self._is_pruning = False
        self._cavities: np.ndarray | None = None  # of the current field, computed at first use

    def fit(self, scene: Scene) -> None:
        """See `OccupancyEstimator.fit`; also sets the initial sphere of a grid without masks, and selects the SfM
        points inside the hull if they are used in training.
        """
        super().fit(scene)
        self._is_interior = is_interior(scene)
        if isinstance(self._sdf, SDFGrid) and self._is_interior:
            self._sdf.begin_with_sphere(INTERIOR_RADIUS, is_inverted=True)
        elif isinstance(self._sdf, SDFGrid) and self.background is not None:
            self._sdf.begin_with_sphere(self.background.conf.bias)
        self._scene_points = None
        if scene.points is not None and self.conf.points_weight > 0:
            xyz = well_supported(training_points(scene.points)).astype(np.float32)
            is_within = ~self._is_outside(xyz) & (np.abs(xyz).max(axis=1) < 1)
            self._scene_points = xyz[is_within] if is_within.sum() >= LEAST_POINTS else None
        self.points = self._points_at(0)

    def begin(self) -> str:
        """See `Estimator.begin`: without masks, start from fused depth maps, if the conf asks for it."""
        sdf, background = self._sdf, self.background
        if background is None or background.conf.depth_until == 0 or not isinstance(sdf, SDFGrid):
            return ""
        fused = None if self._sampler is None else self._sampler.depth
        if fused is None:
            return "too few pixels have a depth; the surface starts as a sphere"
        generator = np.random.default_rng(0)

        def draw() -> tuple[np.ndarray, np.ndarray]:
            on_surface = fused.points[generator.integers(len(fused.points), size=FITTED // 2)]
            anywhere = self.grid.random_points(FITTED // 2, generator)
            distances = fused.distances(anywhere)
            if self._is_interior:  # also where no wall has a depth
                distances = np.minimum(distances, INTERIOR_RADIUS - np.linalg.norm(anywhere, axis=1, keepdims=True))
            return np.concatenate([on_surface, anywhere]), np.concatenate([np.zeros_like(distances), distances])

        sdf.begin_with(draw, self.conf.first_levels)
        self._sharpness.reset(FIRST_INV_S)
        self.starts_from_depth = True
        self.points = self._points_at(0)
        return f"the surface starts from depth maps: {fused.known:.0%} of the pixels of the photographs have a depth"

    def compare_patches(self, most: int | None) -> None:
        """Set the maximum number of rays per batch whose patches are compared; None disables the comparison."""
        self.most_compared = most

    def before_step(self, step: int) -> None:
        """See `OccupancyEstimator.before_step`; SfM points are used from `points_from` to `points_until`.

        If `bounds_inv_s`, each step begins with an inv_s of at most `largest_inv_s` / `last_step`. Of a sharper
        surface, a single sample has the colour of a ray, wherever in its step it is, and few samples are near enough
        to the surface to move it.
        """
        if self.bounds_inv_s:
            self._sharpness.limit(self.conf.largest_inv_s / self.conf.last_step)
        super().before_step(step)
        self._cavities = None
        self._is_pruning = step >= self.first_pruning
        self.points = self._points_at(step)

    def _points_at(self, step: int) -> np.ndarray | None:
        """The SfM points used at this step; a scene photographed from within has a surface near them from the start."""
        if self._uses_depth(step) and self._sampler is not None and self._sampler.depth is not None:
            return self._sampler.depth.points
        first = 0.0 if self.background is None or self._is_interior else self.background.conf.points_from
        is_used = first * self._end_iter <= step < self.conf.points_until * self._end_iter
        return self._scene_points if is_used else None

    def _uses_depth(self, step: int) -> bool:
        """Whether the points of the depth maps are used at this step."""
        until = 0.0 if self.background is None else self.background.conf.depth_until
        return self.starts_from_depth and self.conf.points_weight > 0 and step < until * self._end_iter

    @property
    def first_pruning(self) -> float:
        """See `OccupancyEstimator.first_pruning`; soon if the surface starts from depth."""
        if not self.starts_from_depth:
            return super().first_pruning
        return max(PRUNE_FROM * self._end_iter, self.prunes_after)

    def resolving_step(self) -> float:
        """See `OccupancyEstimator.resolving_step`; without masks at least `background.blur_step` / inv_s, since a finer
        step only reduces the number of rays.
        """
        conf = self.conf
        if self.background is None:
            return conf.last_step
        return min(conf.first_step, max(conf.last_step, self.background.conf.blur_step / self._inv_s()))

    def prune(self) -> None:
        """Mark cells outside the band around the surface as empty or solid.

        The cells are unchanged if too many probe rays would lose the surface, because the field is not a distance yet.
        """
        band = self.conf.shell if self.background is None else self.background.conf.shell
        reach = self._reach + band / self._inv_s()
        sdf = self._hull_distances(reach)
        before, seen = self.grid.cells, self.probe_opacities()
        self.grid.update(sdf > reach, sdf < -reach)
        if lost_share(seen, self.probe_opacities()) > MOST_LOST:
            self.grid.set(before)

    def probe_opacities(self) -> np.ndarray:
        """Opacity [R] of the region along the probe rays; R = 0 if masks are used instead."""
        probes = None if self._sampler is None or self.background is None else self._sampler.probes
        if probes is None:
            return np.zeros(0, np.float32)
        with jt.no_grad():
            return opacities(self.grid, probes, self._sdf.at_weights().distance, self._sharpness())

    def visibility(self, found: PackedSamples, step: float) -> Visibility:
        """Visibility by the signed distances."""
        with jt.no_grad():
            return surface_visibility(found, self._sdf.at_weights().distance(found.points), self._sharpness(), step)

    @property
    def least_weight(self) -> float:
        """Samples of negligible weight are skipped once cells are pruned, and always with a uniform backdrop."""
        is_bare = self.background is None or self.background.is_plain
        return LEAST_WEIGHT if self._is_pruning or is_bare else ALL

    def _inv_s(self) -> float:
        with jt.no_grad():
            return float(self._sharpness().item())

    def trained(self, points: np.ndarray) -> np.ndarray:
        """Signed distances [P, 1] of the field at points [P, 3], unmodified."""
        with jt.no_grad():
            return self._sdf.at_weights().distance(jt.array(points)).numpy()

    def extracted(self, points: np.ndarray) -> np.ndarray:
        """Signed distances [P, 1] for mesh extraction at points [P, 3]: those of the field where it is trained.

        Outside the hull the value is at least the distance to the hull. In solid cells and closed cavities, which no
        ray reaches and which may contain spurious zero crossings, it is negative.
        """
        sdf = self.trained(points)
        outside = self._is_outside(points)
        sdf[outside] = np.maximum(sdf[outside], self.grid.to_hull(points[outside]))
        is_solid = self.grid.at(points) == SOLID
        sdf[is_solid] = np.minimum(sdf[is_solid], -self.grid.side)
        if self.background is not None:
            is_cavity = self._in_cavities(points)
            sdf[is_cavity] = -np.abs(sdf[is_cavity])
            # A surface that continues outside the sphere is cut by a smooth surface instead of cell faces.
            sdf = np.maximum(sdf, np.linalg.norm(points, axis=1, keepdims=True) - (1.0 - self.grid.side))
        return sdf.astype(np.float32)

    def seen_space(self, spacing: float) -> SeenSpace | None:
        """The space that cameras see, for a mesh of grid points at distance `spacing` of which only the seen parts are
        kept. Behind a wall, where no ray trains the field, its surface may have several times the triangles of the seen
        one. None if the surface is smaller than the boundary of this space, or the grid coarser than its cells.
        """
        if self.background is None or self._sampler is None or spacing > self.grid.side:
            return None
        rays = self._sampler.rays_of_views(RAY_SPACING * self.grid.side)
        distances = self._cell_distances()
        space, is_inside = SeenSpace(self.grid, distances < -self._reach, rays), distances < 0
        return space if boundary_faces(is_inside & space.cells) < boundary_faces(is_inside) else None

    def _in_cavities(self, points: np.ndarray) -> np.ndarray:
        """Which points [P, 3] are in cells that a closed surface separates from all cameras: bool [P]."""
        if self._cavities is None:
            self._cavities = self.grid.closed_off(self._cell_distances() < -self._reach)
        return self._cavities[self.grid.indices(points)]

    @property
    def _reach(self) -> float:
        """Half the diagonal of a cell: with less than minus this at its centre, all of it is inside the surface, if the
        gradient norm of the signed distance is 1.
        """
        return self.grid.side * CELL_HALF_DIAGONAL

    def _cell_distances(self) -> np.ndarray:
        """The signed distance of the field at the cell centres, infinite outside the hull: float32 [N, N, N]."""
        distances = np.full(self.grid.hull.shape, np.inf, np.float32)
        distances[self.grid.hull] = self._hull_distances(self._reach)
        return distances

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

    def buffers(self) -> dict[str, np.ndarray]:
        """See `OccupancyEstimator.buffers`; also whether the surface started from depth."""
        return super().buffers() | {"starts_from_depth": np.array([self.starts_from_depth])}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """See `OccupancyEstimator.load_buffers`."""
        super().load_buffers(buffers)
        self.starts_from_depth = bool({**OF_EARLIER_VERSIONS, **buffers}["starts_from_depth"][0])
        self._cavities = None


def is_interior(scene: Scene) -> bool:
    """Whether most cameras are within INTERIOR_RADIUS and at least LEAST_OUTWARD of them look away from the centre."""
    within, outward = shares_within(scene, INTERIOR_RADIUS)
    return within > 0.5 and outward >= LEAST_OUTWARD
