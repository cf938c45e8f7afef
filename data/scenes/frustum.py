"""Geometry of several cameras: view frustums, and the point where the optical axes meet.

V cameras: `intrinsics` [V, 3, 3], `c2w` [V, 4, 4] (OpenCV, see data.cameras), `sizes` [V, 2] (width, height) in pixels.
Everything is in the frame and units of `c2w`, and equivariant under similarities.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import distance_transform_edt, map_coordinates

from data.errors import UserError

# Lines with a smaller spread of directions (mean squared sine to their mean, 1.5 degrees) have no well-defined meeting
# point: rotating the cameras by 0.1 degrees would move it by several per cent of its depth.
SMALLEST_SPREAD = np.sin(np.deg2rad(1.5)) ** 2
LINE_ROUNDING = 1e-9  # of the lines' lengths; smaller distances are rounding errors
OUTLINE_POINTS = 721
MEETING_ROUNDS = 20  # of reweighting; after ten the point has converged to 1e-3 of the residuals
# Half width of the region a mesh is extracted from, as published, in radii of the object's sphere: slightly larger, so
# that a surface that touches the sphere is closed.
REGION_HALF_WIDTH = 1.01
NARROWEST_BOX, FARTHEST_BOX = 1e-3, 1e3  # radii; float32 cannot separate 2048 points in a smaller box


@dataclass(frozen=True, eq=False)
class Cameras:
    """V pinhole cameras with their image sizes."""

    intrinsics: np.ndarray  # [V, 3, 3]
    c2w: np.ndarray  # [V, 4, 4]
    sizes: np.ndarray  # [V, 2] (width, height)

    def __len__(self) -> int:
        """The number of cameras V."""
        return len(self.c2w)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Intrinsics [3, 3], c2w [4, 4] and size [2] of each camera."""
        return zip(self.intrinsics, self.c2w, self.sizes, strict=True)

    @property
    def origins(self) -> np.ndarray:
        """[V, 3], the camera centres."""
        return self.c2w[:, :3, 3]

    @property
    def axes(self) -> np.ndarray:
        """[V, 3], the unit viewing directions."""
        return self.c2w[:, :3, 2] / np.linalg.norm(self.c2w[:, :3, 2], axis=1, keepdims=True)

    def pick(self, views: np.ndarray) -> Cameras:
        """The cameras with these indices."""
        return Cameras(self.intrinsics[views], self.c2w[views], self.sizes[views])


def frustum_distances(points: np.ndarray, cameras: Cameras) -> np.ndarray:
    """Signed distances [V, N] of `points` [N, 3] to the side planes of each camera's frustum, positive inside.

    The distance to the nearest of the four planes is the radius of the largest sphere around the point that is
    completely visible in the image.
    """
    return np.stack([border_distances(points, *camera).min(axis=1) for camera in cameras])


def border_distances(points: np.ndarray, intrinsics: np.ndarray, c2w: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Signed distances [N, 4] of `points` to the left, right, top and bottom planes of one camera's frustum."""
    width, height = size
    # Homogeneous lines l with l . (x, y, 1) >= 0 inside the image, whose border is half a pixel outside the outermost
    # pixel centres. The plane of X in camera coordinates with l . K X = 0 has the normal K^T l.
    borders = np.array([[1, 0, 0.5], [-1, 0, width - 0.5], [0, 1, 0.5], [0, -1, height - 0.5]])
    normals = borders @ intrinsics
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    in_camera = (points - c2w[:3, 3]) @ c2w[:3, :3]
    return in_camera @ normals.T


def meeting_point(origins: np.ndarray, directions: np.ndarray) -> np.ndarray | None:
    """The point [3] with the smallest sum of distances to the lines `origins` + t `directions` (unit), both [L, 3].

    Least squares reweighted by the inverse distance (Weiszfeld), which is robust to a minority of outlier lines. None
    for (nearly) parallel lines or a single one.
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
        floor = max(0.1 * np.median(distances), LINE_ROUNDING * np.median(lengths))
        if floor == 0:
            break
        weights = floor / np.maximum(distances, floor)
    return point


def enclosing_ball(points: np.ndarray) -> tuple[np.ndarray, float]:
    """Centre [3] and radius of the smallest enclosing ball of `points` [N, 3], the radius at most 1 % too large.

    Badoiu and Clarkson, Smaller core-sets for balls (SODA 2003): step i moves 1 / (i + 1) of the way to the farthest
    point. The ball contains all points by construction.
    """
    centre = points.mean(axis=0)
    for step in range(1, 200):
        farthest = points[np.argmax(np.sum((points - centre) ** 2, axis=1))]
        centre = centre + (farthest - centre) / (step + 1)
    return centre, float(np.linalg.norm(points - centre, axis=1).max())


def cell_centres(count: int, half: float = 1.0) -> np.ndarray:
    """Centres [count^3, 3] of the cells of the cube [-half, half]^3, ordered by x, y, z; `count` per axis."""
    axis = _centres_along(count) * half
    return np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)


def squared_radii(count: int) -> np.ndarray:
    """Squared distances [count, count, count] of the cell centres from the origin."""
    squares = np.square(_centres_along(count))
    return squares[:, None, None] + squares[None, :, None] + squares


def octants(centres: np.ndarray, side: float) -> np.ndarray:
    """Centres [8 N, 3] of the eight equal parts of cubes [N, 3] with this side."""
    offsets = np.stack(np.meshgrid(*[(-0.25, 0.25)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    return (centres[:, None] + offsets * side).reshape(-1, 3)


def signed_distances(is_inside: np.ndarray, side: float) -> np.ndarray:
    """Signed distances from the faces between inner and outer cells, at the cell centres.

    `is_inside`: bool [N, N, N]. A cell next to a face is half a side away.
    """
    outside, inside = (distance_transform_edt(part, sampling=side) for part in (~is_inside, is_inside))
    return np.where(is_inside, 0.5 * side - inside, outside - 0.5 * side)


def between_centres(values: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Values [P] at points [P, 3], linear between those of the cell centres, [N, N, N] over the cube [-1, 1]^3."""
    return map_coordinates(values, (points.T + 1.0) * (0.5 * len(values)) - 0.5, order=1, mode="nearest")


def any_in_blocks(cells: np.ndarray) -> np.ndarray:
    """Whether any cell of each block of 2x2x2 cells is true: bool [N, N, N] to [M, M, M] with M = ceil(N / 2)."""
    found = np.pad(cells, (0, len(cells) % 2))
    found = found[::2] | found[1::2]  # whole planes and rows at a time: `any` along three axes takes 40 times as long
    found = found[:, ::2] | found[:, 1::2]
    return found[:, :, ::2] | found[:, :, 1::2]


def children(values: np.ndarray) -> np.ndarray:
    """Values of cells, or of blocks of 2x2x2 cells, copied to their eight parts: [M, M, M] to [2 M, 2 M, 2 M]."""
    for axis in range(3):
        values = values.repeat(2, axis=axis)
    return values


def _centres_along(count: int) -> np.ndarray:
    """The coordinates [count] of the cell centres along an axis of the cube [-1, 1]^3."""
    return (np.arange(count) + 0.5) * (2.0 / count) - 1


def extraction_region(scale_mat: np.ndarray, object_scale_mat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smallest axis-aligned box around the object's cube of +-1.01: two corners [3] in the working frame.

    As published for matrices without rotation. With a rotation, the published code transforms two corners only, which
    may give an empty box.
    """
    cube = REGION_HALF_WIDTH * np.array([[-1.0] * 3, [1.0] * 3])
    low, high = bounds(cube, np.linalg.inv(scale_mat) @ object_scale_mat)
    return low, high


def bounds(box: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """The smallest axis-aligned box [2, 3] around a box [2, 3] (low and high corner) transformed by `matrix` [4, 4]."""
    corners = np.array([[*corner, 1.0] for corner in itertools.product(*box.T)])
    moved = (corners @ matrix.T)[:, :3]
    return np.stack([moved.min(axis=0), moved.max(axis=0)])


def parse_bbox(text: str) -> np.ndarray:
    """The box of `dataset.bbox`: its low and high corner, float64 [2, 3], world frame.

    Raises UserError for a text that is not six finite numbers, and for a box without a volume.
    """
    try:
        numbers = np.array([float(word) for word in text.replace(",", " ").split()])
    except ValueError:
        numbers = np.zeros(0)
    if numbers.shape != (6,) or not (np.isfinite(numbers).all() and (numbers[:3] < numbers[3:]).all()):
        raise UserError(
            f'dataset.bbox = "{text}": must be six numbers, x0 y0 z0 x1 y1 z1, each of the first three below that of '
            'the last three, such as "-1 -1 -1 1 1 1"'
        )
    return numbers.reshape(2, 3)


def box_in_frame(box: np.ndarray, scale_mat: np.ndarray, given_by: str) -> tuple[np.ndarray, np.ndarray]:
    """The smallest axis-aligned box in the working frame around a box [2, 3] of the world frame: two corners [3].

    Raises UserError, naming `given_by`, if float32 cannot separate the grid points in it, or if it is too far away.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # rejected below
        low, high = bounds(box, np.linalg.inv(scale_mat))
    if not (np.abs([low, high]).max() <= FARTHEST_BOX and (high - low).min() >= NARROWEST_BOX):
        raise UserError(
            f"{given_by} {' '.join(f'{value:.12g}' for value in box.reshape(-1))}: must be at least "
            f"{NARROWEST_BOX:g} and reach at most {FARTHEST_BOX:g} radii of the region of interest; correct it"
        )
    return low, high


def sphere_outline(c2w: np.ndarray) -> np.ndarray:
    """The unit sphere's outline: points [OUTLINE_POINTS, 3] in camera coordinates, closed; empty from inside.

    The circle of tangent points of the rays from the camera. With o the centre of the sphere in camera coordinates and
    d = |o|, its centre is (1 - 1/d^2) o, its radius sqrt(1 - 1/d^2) and its normal o.
    """
    middle = -c2w[:3, 3] @ c2w[:3, :3]
    squared = middle @ middle
    if squared <= 1:
        return np.zeros((0, 3))
    share = 1 - 1 / squared
    normal = middle / np.sqrt(squared)
    side = np.cross(normal, np.eye(3)[np.argmin(np.abs(normal))])
    side /= np.linalg.norm(side)
    turn = np.linspace(0, 2 * np.pi, OUTLINE_POINTS)[:, None]
    return share * middle + np.sqrt(share) * (np.cos(turn) * side + np.sin(turn) * np.cross(normal, side))


def outline_pixels(intrinsics: np.ndarray, c2w: np.ndarray) -> list[np.ndarray]:
    """The outline in pixels: curves [K, 2]; a single closed one unless part of the sphere is behind the camera."""
    points = sphere_outline(c2w)
    if not len(points):
        return []
    in_front = points[:, 2] > 1e-3 * np.linalg.norm(points, axis=1)  # points near the camera plane project to infinity
    if not in_front.any():
        return []
    if not in_front.all():  # start behind the camera, so that no visible curve is split where the circle closes
        start = int(np.argmin(in_front[:-1]))
        points, in_front = (np.roll(value[:-1], -start, axis=0) for value in (points, in_front))
    pixels = points @ intrinsics.T
    with np.errstate(divide="ignore", invalid="ignore"):
        pixels = pixels[:, :2] / pixels[:, 2:]
    ends = np.flatnonzero(np.diff(in_front.astype(int))) + 1
    pieces = [(part, ok[0]) for part, ok in zip(np.split(pixels, ends), np.split(in_front, ends), strict=True)]
    return [part for part, ok in pieces if ok and len(part) > 1]


def sphere_points(count: int) -> np.ndarray:
    """Evenly distributed unit vectors [count, 3], none at a pole: the spherical Fibonacci lattice."""
    z = 1 - (2 * np.arange(count) + 1) / count
    turn = np.pi * (3 - np.sqrt(5)) * np.arange(count)
    return np.stack([np.sqrt(1 - z**2) * np.cos(turn), np.sqrt(1 - z**2) * np.sin(turn), z], axis=1)
