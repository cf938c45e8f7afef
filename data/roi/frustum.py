"""What several cameras look at: what is in their images, and the point that their axes have in common.

V cameras: `intrinsics` [V, 3, 3], `c2w` [V, 4, 4] (OpenCV, see data.cameras), `sizes` [V, 2] (width, height) in pixels.
Everything is in the frame of `c2w`, in its units, and moves with it under any similarity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

# Lines whose directions spread less than this (mean squared sine about their mean, 1.5 degrees) meet nowhere in
# particular: turning the cameras by a tenth of a degree would move the meeting point by several per cent of its depth.
SMALLEST_SPREAD = np.sin(np.deg2rad(1.5)) ** 2
ROUNDING = 1e-9  # of the lines' lengths: distances below it are all the same
MEETING_ROUNDS = 20  # of reweighting; the meeting point is settled to 1e-3 of the residuals after ten


@dataclass(frozen=True, eq=False)
class Cameras:
    """V pinhole cameras and the sizes of their images."""

    intrinsics: np.ndarray  # [V, 3, 3]
    c2w: np.ndarray  # [V, 4, 4]
    sizes: np.ndarray  # [V, 2] (width, height)

    def __len__(self) -> int:
        """V."""
        return len(self.c2w)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Intrinsics [3, 3], c2w [4, 4] and size [2] of one camera after the other."""
        return zip(self.intrinsics, self.c2w, self.sizes, strict=True)

    @property
    def origins(self) -> np.ndarray:
        """[V, 3], where the cameras are."""
        return self.c2w[:, :3, 3]

    @property
    def axes(self) -> np.ndarray:
        """[V, 3], unit directions in which they look."""
        return self.c2w[:, :3, 2] / np.linalg.norm(self.c2w[:, :3, 2], axis=1, keepdims=True)

    def pick(self, views: np.ndarray) -> Cameras:
        """The cameras of these view numbers."""
        return Cameras(self.intrinsics[views], self.c2w[views], self.sizes[views])


def frustum_distances(points: np.ndarray, cameras: Cameras) -> np.ndarray:
    """How deep inside each camera's pyramid of view `points` [N, 3] lie: [V, N], lengths, negative outside.

    The distance to the nearest of the four planes through the camera and a border of its image: the radius of the
    largest sphere about the point that is wholly in the image.
    """
    return np.stack([border_distances(points, *camera).min(axis=1) for camera in cameras])


def border_distances(points: np.ndarray, intrinsics: np.ndarray, c2w: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Distances [N, 4] of `points` from the planes through one camera and its image's left, right, top, bottom."""
    width, height = size
    # Homogeneous lines l with l . (x, y, 1) >= 0 inside the image, whose outermost pixels reach half a pixel beyond
    # their centres. The plane of X in camera coordinates with l . K X = 0 has the normal K^T l.
    borders = np.array([[1, 0, 0.5], [-1, 0, width - 0.5], [0, 1, 0.5], [0, -1, height - 0.5]])
    normals = borders @ intrinsics
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    in_camera = (points - c2w[:3, 3]) @ c2w[:3, :3]
    return in_camera @ normals.T


def meeting_point(origins: np.ndarray, directions: np.ndarray) -> np.ndarray | None:
    """The point [3] with the least sum of distances to the lines `origins` + t `directions` (unit), both [L, 3].

    Least squares reweighted by the inverse distance (Weiszfeld), so that a minority of lines that go elsewhere does not
    pull it away. None where the lines are (nearly) parallel, or there is only one.
    """
    across = np.eye(3) - directions[:, :, None] * directions[:, None, :]
    if np.linalg.eigvalsh(across.mean(axis=0))[0] < SMALLEST_SPREAD:
        return None
    weights = np.ones(len(origins))
    for _ in range(MEETING_ROUNDS):
        matrix = np.einsum("l,lij->ij", weights, across)
        point = np.linalg.solve(matrix, np.einsum("l,lij,lj->i", weights, across, origins))
        distances = np.linalg.norm(np.einsum("lij,lj->li", across, point - origins), axis=1)
        lengths = np.linalg.norm(point - origins, axis=1)
        floor = max(0.1 * np.median(distances), ROUNDING * np.median(lengths))
        if floor == 0:
            break
        weights = floor / np.maximum(distances, floor)
    return point


def enclosing_ball(points: np.ndarray) -> tuple[np.ndarray, float]:
    """Centre [3] and radius of the smallest ball around `points` [N, 3], the radius at most 1 % too large.

    Badoiu and Clarkson, Smaller core-sets for balls (SODA 2003): step i goes 1 / (i + 1) of the way to the farthest
    point; the radius then holds every point by construction.
    """
    centre = points.mean(axis=0)
    for step in range(1, 200):
        farthest = points[np.argmax(np.sum((points - centre) ** 2, axis=1))]
        centre = centre + (farthest - centre) / (step + 1)
    return centre, float(np.linalg.norm(points - centre, axis=1).max())
