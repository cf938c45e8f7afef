"""Where along rays something may be: a grid of cells over the cube [-1, 1]^3, and the samples that it leaves.

The hull is what is known beforehand (masks, or the unit sphere alone) and never grows. Within it a field that is being
trained tells from time to time which cells are empty, which may hold a surface, and which are inside the object.
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
class Walk:
    """The samples of the first rays of some, as many as fit a budget; R of these rays have any."""

    rows: np.ndarray  # [R] which rays have samples, ascending
    offsets: np.ndarray  # int32 [R + 1]: the samples of the ray rows[r] are offsets[r] to offsets[r + 1]
    depths: np.ndarray  # [S, 1] float32, S the budget; zeros beyond offsets[R], as in the two below
    points: np.ndarray  # [S, 3]
    directions: np.ndarray  # [S, 3]
    walked: int  # so many rays, from the first, were walked

    def sifted(self, is_kept: np.ndarray, budget: int) -> Walk:
        """Only the samples that are kept, bool [S], of the first rays, as many as fit another budget."""
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
        walked = self.walked if count == len(self.rows) else int(self.rows[count])
        return Walk(self.rows[:count][has_any], offsets, *samples, walked)


@dataclass(frozen=True)
class Walking:
    """A walk that may still be under way on a card."""

    found: PackedSamples

    @cached_property
    def walk(self) -> Walk:
        """It, waited for."""
        offsets, walked = self.found.offsets.numpy(), int(self.found.kept.item())
        rows = np.flatnonzero(np.diff(offsets[: walked + 1]))
        ends = np.concatenate([offsets[rows], offsets[-1:]]).astype(np.int32)
        samples = (value.numpy() for value in (self.found.depths, self.found.points, self.found.directions))
        return Walk(rows, ends, *samples, walked)

    def points(self) -> Var:
        """The places of its samples [N, 3], at least one, to ask a field about before the walk is waited for.

        Behind its samples come zeros, up to the budget; on the host, where reading waits for nothing, none.
        """
        return jt.array(self.walk.points[: max(1, self.walk.offsets[-1])]) if device() == CPU else self.found.points


def packed_walk(ray: np.ndarray, depths: np.ndarray, points: np.ndarray, rays: Rays, budget: int) -> Walk:
    """The walk with these samples, ordered by ray [S] and depth [S], of the first rays whose samples fit a budget."""
    ends = np.searchsorted(ray, np.arange(len(rays) + 1))  # before each ray, and after all
    walked = int(np.searchsorted(ends, budget, side="right")) - 1
    used = int(ends[walked])
    rows = np.flatnonzero(np.diff(ends[: walked + 1]))

    def padded(values: np.ndarray) -> np.ndarray:
        found = np.zeros((budget, values.shape[1]), np.float32)
        found[:used] = values[:used]
        return found

    offsets = np.concatenate([ends[rows], [used]]).astype(np.int32)
    return Walk(rows, offsets, padded(depths[:, None]), padded(points), padded(rays.directions[ray]), walked)


class Occupancy:
    """The cells as they are now."""

    def __init__(self, hull: np.ndarray) -> None:
        """`hull`: bool [N, N, N] by x, y, z."""
        self.near_plane = 0.0  # nothing is nearer to a camera, working-frame units
        self.cameras = np.zeros((0, 3))  # where they are; those beyond the cube need not be named
        self._placed: Var | None = None
        self.enclose(hull)

    @property
    def side(self) -> float:
        """Length of a cell's edge."""
        return 2.0 / len(self.hull)

    def enclose(self, hull: np.ndarray) -> None:
        """Another hull, bool [N, N, N], all of which may hold a surface."""
        self.hull = hull
        self._hull_cells = np.argwhere(hull)
        self._hull_distances: np.ndarray | None = None  # how far from the hull each cell is, once that is asked for
        self.open()

    def set(self, cells: np.ndarray) -> None:
        """Replace the cells, uint8 [N, N, N]."""
        self.cells = cells
        self.is_open = bool((cells[self.hull] == OCCUPIED).all())  # nothing of the hull is left out
        self._placed = None

    def open(self) -> None:
        """Whatever the hull holds may hold a surface."""
        self.set(self.hull.astype(np.uint8) * OCCUPIED)

    def centres(self) -> np.ndarray:
        """The middles of the hull's cells, float32 [P, 3]."""
        return ((self._hull_cells + 0.5) * self.side - 1).astype(np.float32)

    def anywhere(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Points drawn evenly from the hull, float32 [count, 3]."""
        cells = self._hull_cells[generator.integers(len(self._hull_cells), size=count)]
        return ((cells + generator.random((count, 3))) * self.side - 1).astype(np.float32)

    def at(self, points: np.ndarray) -> np.ndarray:
        """The cells that points [P, 3] lie in, uint8 [P]; the nearest ones beyond the cube."""
        return self.cells[self.place(points)]

    def place(self, points: np.ndarray) -> tuple[np.ndarray, ...]:
        """The numbers of these cells along x, y and z, [P] each."""
        count = len(self.cells)
        return tuple(np.clip(((points + 1) * (0.5 * count)).astype(np.int32), 0, count - 1).T)

    def to_hull(self, points: np.ndarray) -> np.ndarray:
        """How far points [P, 3] beyond the hull are from it, to an edge of a cell, and at least that: float32 [P, 1].

        Continuous, so that an extraction that goes by slopes passes over what lies beyond.
        """
        if self._hull_distances is None:
            self._hull_distances = distance_transform_edt(~self.hull, sampling=self.side).astype(np.float32)
        places = (points.T + 1.0) / self.side - 0.5
        away = map_coordinates(self._hull_distances, places, order=1, mode="nearest")
        return np.maximum(away, np.float32(self.side))[:, None]

    def renew(self, is_empty: np.ndarray, is_solid: np.ndarray) -> None:
        """The cells of `centres`, by what a field says of each: bool [P] twice.

        What solid cells part from all that is outside and from the cameras is solid: no ray comes there to say so.
        """
        kinds = np.full(len(is_empty), OCCUPIED, np.uint8)
        kinds[is_empty] = EMPTY
        kinds[is_solid] = SOLID
        cells = np.zeros_like(self.cells)
        cells[self.hull] = kinds
        cells[self.closed_off(cells == SOLID)] = SOLID
        self.set(cells)

    def closed_off(self, is_wall: np.ndarray) -> np.ndarray:
        """The cells that walls part from all that is outside and from the cameras: bool [N, N, N], as the walls are."""
        parts, _ = label(~is_wall)
        within = self.cameras[np.abs(self.cameras).max(axis=1, initial=0.0) < 1]
        open_parts = [parts[0, 0, 0], *parts[self.place(within)]]  # a corner of the cube is beyond the sphere
        return ~np.isin(parts, open_parts) & ~is_wall

    def walk(self, rays: Rays, jitter: np.ndarray, step: float, budget: int) -> Walk:
        """Samples of rays `step` apart, their first shifted by jitter [R, 1] in [0, 1) of it."""
        return self.start(rays, jitter, step, budget).walk

    def start(self, rays: Rays, jitter: np.ndarray, step: float, budget: int) -> Walking:
        """The same under way: nothing is waited for."""
        if self._placed is None:
            self._placed = jt.array(self.cells).stop_grad()
        near = np.maximum(rays.near, np.float32(self.near_plane))
        given = (jt.array(value) for value in (rays.origins, rays.directions, near, rays.far, jitter))
        return Walking(march(*given, self._placed, step, budget))
