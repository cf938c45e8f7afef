"""An occupancy grid over the cube [-1, 1]^3, and the packed samples of rays that traverse it.

The hull is known beforehand (the visual hull of masks, or the unit sphere) and never grows. Within it the field that is
being trained decides from time to time which cells are empty, occupied (may hold a surface) or solid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.ndimage import distance_transform_edt, label, map_coordinates

from data.rays import Rays
from models.machine.backend import jt
from models.ops.march import EMPTY, OCCUPIED, SOLID, PackedSamples, march
from models.ops.source import CPU, device
from models.structs import Var


@dataclass(frozen=True)
class Traversal:
    """Packed samples of the first rays that fit the sample budget, on the host. R: rays with at least one sample."""

    rows: np.ndarray  # [R] which rays have samples, ascending
    offsets: np.ndarray  # int32 [R + 1]: the samples of the ray rows[r] are offsets[r] to offsets[r + 1]
    depths: np.ndarray  # [S, 1] float32, S the budget; zeros beyond offsets[R], as in the two below
    points: np.ndarray  # [S, 3]
    directions: np.ndarray  # [S, 3]
    traversed: int  # rays, from the first, that fitted the budget

    def visible(self, is_kept: np.ndarray, budget: int) -> Traversal:
        """Only the samples with is_kept, bool [S], of the first rays that fit another budget."""
        used = self.offsets[-1]
        before = np.concatenate([[0], np.cumsum(is_kept[:used])])
        ends = before[self.offsets]
        count = int(np.searchsorted(ends, budget, side="right")) - 1  # rays that fit
        kept = np.flatnonzero(is_kept[: self.offsets[count]])
        lengths = np.diff(ends[: count + 1])
        has_any = lengths > 0

        def moved(values: np.ndarray) -> np.ndarray:
            found = np.zeros((budget, values.shape[1]), values.dtype)
            found[: len(kept)] = values[kept]
            return found

        offsets = np.concatenate([[0], np.cumsum(lengths[has_any])]).astype(np.int32)
        samples = (moved(values) for values in (self.depths, self.points, self.directions))
        traversed = self.traversed if count == len(self.rows) else int(self.rows[count])
        return Traversal(self.rows[:count][has_any], offsets, *samples, traversed)


@dataclass(frozen=True)
class PendingTraversal:
    """A traversal that a GPU may still be computing."""

    found: PackedSamples

    @cached_property
    def result(self) -> Traversal:
        """The traversal; waits for the device."""
        offsets, traversed = self.found.offsets.numpy(), int(self.found.kept.item())
        rows = np.flatnonzero(np.diff(offsets[: traversed + 1]))
        ends = np.concatenate([offsets[rows], offsets[-1:]]).astype(np.int32)
        samples = (value.numpy() for value in (self.found.depths, self.found.points, self.found.directions))
        return Traversal(rows, ends, *samples, traversed)

    def points(self) -> Var:
        """The positions of the samples [N, 3], at least one, for evaluating a field before the traversal is waited for.

        Padded with zeros up to the budget; not on the CPU, where reading waits for nothing.
        """
        return jt.array(self.result.points[: max(1, self.result.offsets[-1])]) if device() == CPU else self.found.points


def packed_traversal(ray: np.ndarray, depths: np.ndarray, points: np.ndarray, rays: Rays, budget: int) -> Traversal:
    """The samples given by ray [S] and depth [S], in that order, of the first rays that fit the budget."""
    ends = np.searchsorted(ray, np.arange(len(rays) + 1))  # before each ray, and after all
    traversed = int(np.searchsorted(ends, budget, side="right")) - 1
    used = int(ends[traversed])
    rows = np.flatnonzero(np.diff(ends[: traversed + 1]))

    def padded(values: np.ndarray) -> np.ndarray:
        found = np.zeros((budget, values.shape[1]), np.float32)
        found[:used] = values[:used]
        return found

    offsets = np.concatenate([ends[rows], [used]]).astype(np.int32)
    return Traversal(rows, offsets, padded(depths[:, None]), padded(points), padded(rays.directions[ray]), traversed)


class OccupancyGrid:
    """The cells as they are now."""

    def __init__(self, hull: np.ndarray) -> None:
        """`hull`: bool [N, N, N] by x, y, z."""
        self.near_plane = 0.0  # nothing is nearer to a camera, working-frame units
        self.cameras = np.zeros((0, 3))  # camera centres; those outside the cube need not be given
        self._on_device: Var | None = None
        self.enclose(hull)

    def fit(self, cameras: np.ndarray, near_plane: float) -> None:
        """Set the camera centres [V, 3] and the near plane of a scene."""
        self.cameras, self.near_plane = cameras, near_plane

    @property
    def side(self) -> float:
        """Length of a cell's edge."""
        return 2.0 / len(self.hull)

    def enclose(self, hull: np.ndarray) -> None:
        """Another hull, bool [N, N, N], all of whose cells become occupied."""
        self.hull = hull
        self._hull_cells = np.argwhere(hull)
        self._hull_distances: np.ndarray | None = None  # distance of each cell from the hull, computed on first use
        self.open()

    def set(self, cells: np.ndarray) -> None:
        """Replace the cells, uint8 [N, N, N]."""
        self.cells = cells
        self.is_open = bool((cells[self.hull] == OCCUPIED).all())
        self._on_device = None

    def open(self) -> None:
        """Mark all cells of the hull as occupied."""
        self.set(self.hull.astype(np.uint8) * OCCUPIED)

    def centres(self) -> np.ndarray:
        """Centres of the hull's cells, float32 [P, 3]."""
        return ((self._hull_cells + 0.5) * self.side - 1).astype(np.float32)

    def random_points(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Uniform points in the hull, float32 [count, 3]."""
        cells = self._hull_cells[generator.integers(len(self._hull_cells), size=count)]
        return ((cells + generator.random((count, 3))) * self.side - 1).astype(np.float32)

    def at(self, points: np.ndarray) -> np.ndarray:
        """State of the cells that points [P, 3] lie in, uint8 [P]; outside the cube, of the nearest cells."""
        return self.cells[self.indices(points)]

    def indices(self, points: np.ndarray) -> tuple[np.ndarray, ...]:
        """Indices of these cells along x, y and z, [P] each."""
        count = len(self.cells)
        return tuple(np.clip(((points + 1) * (0.5 * count)).astype(np.int32), 0, count - 1).T)

    def to_hull(self, points: np.ndarray) -> np.ndarray:
        """Distance of points [P, 3] outside the hull from it, at least a cell's edge: float32 [P, 1].

        It is continuous, so that a sparse extraction by bounded slopes skips what lies outside.
        """
        if self._hull_distances is None:
            self._hull_distances = distance_transform_edt(~self.hull, sampling=self.side).astype(np.float32)
        indices = (points.T + 1.0) / self.side - 0.5
        away = map_coordinates(self._hull_distances, indices, order=1, mode="nearest")
        return np.maximum(away, np.float32(self.side))[:, None]

    def update(self, is_empty: np.ndarray, is_solid: np.ndarray) -> None:
        """Set the cells of `centres` by what the field says of each: bool [P] twice.

        Cells that solid cells separate from the outside and from all cameras become solid: no ray reaches them, so they
        are untrained.
        """
        kinds = np.full(len(is_empty), OCCUPIED, np.uint8)
        kinds[is_empty] = EMPTY
        kinds[is_solid] = SOLID
        cells = np.zeros_like(self.cells)
        cells[self.hull] = kinds
        cells[self.closed_off(cells == SOLID)] = SOLID
        self.set(cells)

    def closed_off(self, is_wall: np.ndarray) -> np.ndarray:
        """The cells that walls separate from the outside and from all cameras: bool [N, N, N], as `is_wall`."""
        parts, _ = label(~is_wall)
        within = self.cameras[np.abs(self.cameras).max(axis=1, initial=0.0) < 1]
        open_parts = [parts[0, 0, 0], *parts[self.indices(within)]]  # a corner of the cube is beyond the sphere
        return ~np.isin(parts, open_parts) & ~is_wall

    def traverse(self, rays: Rays, jitter: np.ndarray, step: float, budget: int) -> Traversal:
        """Samples of rays `step` apart, the first shifted by jitter [R, 1] in [0, 1) of it."""
        return self.start(rays, jitter, step, budget).result

    def start(self, rays: Rays, jitter: np.ndarray, step: float, budget: int) -> PendingTraversal:
        """The same without waiting for the device."""
        if self._on_device is None:
            self._on_device = jt.array(self.cells).stop_grad()
        near = np.maximum(rays.near, np.float32(self.near_plane))
        given = (jt.array(value) for value in (rays.origins, rays.directions, near, rays.far, jitter))
        return PendingTraversal(march(*given, self._on_device, step, budget))
