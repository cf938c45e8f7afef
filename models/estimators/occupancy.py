"""An occupancy grid over the cube [-1, 1]^3, and the packed samples of rays that traverse it.

The hull (the visual hull of the masks, or the unit sphere) is given initially and never grows. Updates classify the
cells inside it as empty, occupied (may contain the surface) or solid, by the values of the trained field; `EmptyCells`
finds those in which a density is negligible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from scipy.ndimage import binary_dilation, distance_transform_edt, label

from data.cameras import SPAN_LENGTH
from data.rays import Rays
from data.scenes.frustum import any_in_blocks, between_centres, children, signed_distances
from data.scenes.scene import Posed
from data.scenes.sparse import near_plane
from models.estimators.base import require_alike, upload
from models.machine.backend import jt
from models.ops.march import EMPTY, OCCUPIED, SOLID, PackedSamples, march, with_empty_boxes
from models.structs import Var


def centred_jitter(rays: int) -> np.ndarray:
    """The jitter [R, 1] that places samples in the middle of their steps, as in images."""
    return np.full((rays, 1), 0.5, np.float32)


class OccupancyGrid:
    """The hull and the current states of the cells."""

    def __init__(self, hull: np.ndarray) -> None:
        """`hull`: bool [N, N, N] by x, y, z."""
        self.near_plane = 0.0  # smallest distance of samples from a camera, working-frame units
        self.cameras = np.zeros((0, 3))  # camera centres; those outside the cube may be omitted
        self._on_device: Var | None = None
        self.enclose(hull)

    def see(self, views: Posed) -> None:
        """Take the camera centres and the near plane of a scene."""
        self.cameras = views.c2w[:, :3, 3]
        self.near_plane = near_plane(self.cameras, views.points)

    @property
    def side(self) -> float:
        """Edge length of a cell."""
        return 2.0 / len(self.hull)

    def enclose(self, hull: np.ndarray) -> None:
        """Replace the hull, bool [N, N, N]; all its cells become occupied."""
        self.hull = hull
        self.hull_cells = np.argwhere(hull).astype(np.int32)  # [P, 3], indices along x, y and z
        # Computed on first use: the distance of each cell from the hull, and `blocks`.
        self._hull_distances: np.ndarray | None = None
        self._blocks: tuple[np.ndarray, np.ndarray] | None = None
        self.open()

    @property
    def occupied_share(self) -> float:
        """The fraction of the hull's cells that are occupied."""
        return float((self.cells[self.hull] == OCCUPIED).mean())

    def set(self, cells: np.ndarray) -> None:
        """Replace the cells, uint8 [N, N, N]."""
        self.cells = cells
        self.is_open = bool((cells[self.hull] == OCCUPIED).all())
        self._on_device = None

    def open(self) -> None:
        """Mark all cells of the hull as occupied."""
        self.set(self.hull.astype(np.uint8) * OCCUPIED)

    def centres(self, which: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Centres of the cells of the hull, or of some of them, float32 [P, 3]."""
        return ((self.hull_cells[which] + 0.5) * self.side - 1).astype(np.float32)

    def blocks(self) -> tuple[np.ndarray, np.ndarray]:
        """Centres of the blocks of 2x2x2 cells that contain cells of the hull, float32 [B, 3], and the block of each
        cell of the hull, int32 [P].
        """
        if self._blocks is None:
            exist = any_in_blocks(self.hull)
            numbers = np.cumsum(exist, dtype=np.int32).reshape(exist.shape) - 1
            centres = ((2 * np.argwhere(exist) + 1) * self.side - 1).astype(np.float32)
            count = len(self.hull)
            self._blocks = centres, children(numbers)[:count, :count, :count][self.hull]
        return self._blocks

    def random_points(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Uniform points in the hull, float32 [count, 3]."""
        cells = self.hull_cells[generator.integers(len(self.hull_cells), size=count)]
        return ((cells + generator.random((count, 3))) * self.side - 1).astype(np.float32)

    def indices(self, points: np.ndarray) -> tuple[np.ndarray, ...]:
        """Indices along x, y and z, [P] each, of the cells of points [P, 3]; outside the cube, of the nearest cells."""
        count = len(self.cells)
        return tuple(np.clip(((points + 1) * (0.5 * count)).astype(np.int32), 0, count - 1).T)

    def to_hull(self, points: np.ndarray) -> np.ndarray:
        """Distance of points [P, 3] outside the hull from the hull, at least the edge length of a cell: float32 [P, 1].

        It is continuous, so that sparse extraction with bounded slopes skips the outside.
        """
        if self._hull_distances is None:
            self._hull_distances = distance_transform_edt(~self.hull, sampling=self.side).astype(np.float32)
        return np.maximum(between_centres(self._hull_distances, points), np.float32(self.side))[:, None]

    def update(self, is_empty: np.ndarray, is_solid: np.ndarray) -> None:
        """Set the states of the cells of `centres`: empty or solid by two masks, bool [P]; the others become occupied.

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
        parts, count = label(~is_wall)
        within = self.cameras[np.abs(self.cameras).max(axis=1, initial=0.0) < 1]
        is_closed = np.ones(count + 1, bool)  # of the walls, number 0, and of each part
        is_closed[[0, parts[0, 0, 0], *parts[self.indices(within)]]] = False  # a corner is outside the sphere
        return is_closed[parts]

    def march(self, rays: Rays, jitter: np.ndarray | Var, step_size: float, budget: int) -> PackedSamples:
        """Samples along rays at distance `step_size`, shifted by jitter [R, 1] in [0, 1) steps; does not wait for the
        device.
        """
        if self._on_device is None:
            self._on_device = jt.array(with_empty_boxes(self.cells)).stop_grad()
        origins, directions, near, far = vars(upload(rays)).values()
        near = jt.maximum(near, float(np.float32(self.near_plane)))
        return march(origins, directions, near, far, jt.array(jitter), self._on_device, step_size, budget)

    def probe(self, rays: Rays) -> PackedSamples:
        """All samples along rays, at intervals of the edge length of a cell; does not wait for the device."""
        return self.march(rays, centred_jitter(len(rays)), self.side, len(rays) * (int(SPAN_LENGTH / self.side) + 2))

    def crosses(self, rays: Rays) -> np.ndarray:
        """Whether rays have samples in the current cells: bool [R]."""
        return np.diff(self.probe(rays).offsets.numpy()) > 0 if len(rays) else np.zeros(0, bool)


CELLS_AT_ONCE = 1 << 16  # cells evaluated per update, which takes as long as a few steps
PATIENCE = 4  # consecutive updates with low opacity after which a cell counts as empty
# A quasirandom sequence of points that fills a cell evenly
# (Roberts 2018, "The unreasonable effectiveness of quasirandom sequences").
POINT_STRIDE = 1.0 / 1.22074408460575947536 ** np.arange(1, 4)


class EmptyCells:
    """Counts for each cell how often in a row it was found empty."""

    def __init__(self, grid: OccupancyGrid, threshold: float, key: str, prefix: str = "") -> None:
        """A cell with an opacity below `threshold` is empty. `key` of the conf: cells; `prefix` of the buffers."""
        self.grid, self.threshold, self._key, self._prefix = grid, threshold, key, prefix
        self.count = 0
        self.forget()

    def forget(self) -> None:
        """Reset the counts."""
        self.empty = np.zeros(self.grid.hull.shape, np.uint8)

    def update(self, opacity: Callable[[np.ndarray], np.ndarray]) -> None:
        """Evaluate some cells; `opacity` of points [P, 3] returns that of their cells [P]."""
        hull = self.grid.hull_cells
        turns = max(1, -(-len(hull) // CELLS_AT_ONCE))
        some = hull[self.count % turns :: turns]
        place = (0.5 + (self.count // turns) * POINT_STRIDE) % 1.0
        points = ((some + place) * self.grid.side - 1).astype(np.float32)
        at = tuple(some.T)
        self.empty[at] = np.where(opacity(points) > self.threshold, 0, np.minimum(self.empty[at] + 1, PATIENCE))
        self.count += 1
        self.grid.update((self.empty >= PATIENCE)[self.grid.hull], np.zeros(len(hull), bool))

    def buffers(self) -> dict[str, np.ndarray]:
        """The counts, and the number of updates."""
        return {f"{self._prefix}empty_looks": self.empty.copy(), f"{self._prefix}looks": np.array([self.count])}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        own = self.buffers()
        require_alike(own, buffers, self._key)
        empty, count = (buffers[name] for name in own)
        self.empty, self.count = empty.copy(), int(count[0])


RAY_SPACING = 2.0  # cells between neighbouring rays at the far end of the region
MARGIN = 2  # cells around those that a ray crosses: the spacing of rays, and the surface in which they end


class SeenSpace:
    """Cells that the rays of some photograph cross before they end inside the surface, with a margin."""

    def __init__(self, grid: OccupancyGrid, is_inside: np.ndarray, rays: Iterable[Rays]) -> None:
        """`is_inside`: bool [N, N, N], the cells whose points are all inside the surface; `rays`: of each camera."""
        seen = np.zeros_like(is_inside)
        cells = OccupancyGrid(np.ones_like(is_inside))  # without near plane: what is nearer is in the image, too
        cells.set(np.where(is_inside, SOLID, OCCUPIED).astype(np.uint8))
        for some in rays:
            budget = int(np.ceil((some.far - some.near.clip(min=0)) / grid.side + 1).clip(min=1).sum())
            samples = cells.march(some, centred_jitter(len(some)), grid.side, budget)
            seen[grid.indices(samples.points[: int(samples.offsets[-1:].item())].numpy())] = True
        self._side = grid.side
        self.cells = seen = binary_dilation(seen, iterations=MARGIN)  # bool [N, N, N]
        self._distances = signed_distances(seen, grid.side).astype(np.float32)

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Approximate signed distance [P, 1] of points [P, 3] from this space, negative within; continuous."""
        return between_centres(self._distances, points)[:, None]

    def bounds(self, points: np.ndarray) -> np.ndarray:
        """Which points [P, 3] of a surface are on the boundary of this space, not on the object: bool [P]."""
        return self.distance(points)[:, 0] > -0.5 * self._side


def rays_of_views(views: Posed, side: float) -> Iterator[Rays]:
    """Rays of each image on a grid of pixels, RAY_SPACING cells of edge length `side` apart at the far end of the unit
    sphere.
    """
    for view in range(views.n_views):
        intrinsics, away = views.intrinsics[view], 1.0 + np.linalg.norm(views.c2w[view, :3, 3])
        level = max(1.0, min(intrinsics[0, 0], intrinsics[1, 1]) * RAY_SPACING * side / away)
        yield views.rays(view, level)[0]


def boundary_faces(is_inside: np.ndarray) -> int:
    """The number of faces between cells inside and outside, bool [N, N, N]: about the area of the surface."""
    return sum(int(np.diff(is_inside, axis=axis).sum()) for axis in range(3))
