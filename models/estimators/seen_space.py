"""The space that some camera may see, for meshes of which only the seen parts are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from scipy.ndimage import binary_dilation

from data.rays import Rays
from data.scenes.frustum import between_centres, signed_distances
from data.scenes.scene import Posed
from models.estimators.occupancy import OccupancyGrid, middles
from models.machine.backend import jt
from models.ops.march import OCCUPIED, SOLID, march

RAY_SPACING = 2.0  # cells between neighbouring rays at the far end of the region
MARGIN = 2  # cells around those that a ray crosses: the spacing of rays, and the surface in which they end


class SeenSpace:
    """Cells that the rays of some photograph cross before they end inside the surface, with a margin."""

    def __init__(self, grid: OccupancyGrid, is_inside: np.ndarray, rays: Iterable[Rays]) -> None:
        """`is_inside`: bool [N, N, N], the cells whose points are all inside the surface; `rays`: of each camera."""
        seen = np.zeros_like(is_inside)
        cells = jt.array(np.where(is_inside, SOLID, OCCUPIED).astype(np.uint8))
        for some in rays:
            near = np.maximum(some.near, np.float32(0.0))  # what is nearer than the near plane is in the image, too
            budget = int(np.ceil((some.far - near) / grid.side + 1).clip(min=1).sum())
            given = map(jt.array, (some.origins, some.directions, near, some.far, middles(len(some))))
            found = march(*given, cells, grid.side, budget)
            seen[grid.indices(found.points[: int(found.offsets[-1:].item())].numpy())] = True
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
