"""Camera geometry in float64, as pure functions: projections, pixels, rays, interpolated poses.

Frames: a camera looks along its +z axis, x points right and y down (OpenCV); pixel (0, 0) is the centre of the first
pixel. `c2w` [4, 4] maps camera coordinates to the working frame of the scene, `intrinsics` [3, 3] maps camera
coordinates to homogeneous pixels. "Published" means the code of the NeuS paper, https://github.com/Totoro97/NeuS at
commit 6e0a230, models/dataset.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import rq
from scipy.spatial.transform import Rotation, Slerp

from data.rays import ImageRays, PinholeCamera, Rays

# Volume spanned by the normalised rows of a projection's left 3x3: 1 for a camera with centred axes, about
# (focal / width)^2 for an extremely wide lens, and the rounding of float32 (1e-7) for a matrix of rank two.
SMALLEST_ROW_VOLUME = 1e-6

# World units. Squares of larger numbers overflow float32, and no real scene has such coordinates.
LARGEST_NUMBER = 1e15

# Focal lengths over the image's side. The shortest is about what SMALLEST_ROW_VOLUME allows. With the longest, the
# farthest camera that a scene may have sees only the unit sphere.
SHORTEST_FOCAL_RATIO, LONGEST_FOCAL_RATIO = 1e-3, 1e6

LEAST_UP = 1e-3  # length of the mean up vector; a shorter one is the rounding error of poses that cancel out

# Half the length of the interval sampled along each ray: the radius of the unit sphere.
SPAN_HALF_LENGTH = 1.0
SPAN_LENGTH = 2 * SPAN_HALF_LENGTH

PIXEL_CENTRE = 0.5  # coordinate of the centre of the first pixel in COLMAP and in the rasteriser; it is 0 in scenes


def decompose_projection(projection: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split `projection` [3, 4] = scale * K [R | -R c] into K [3, 3] and the camera-to-world pose [4, 4].

    K is upper triangular with a positive diagonal and K[2, 2] = 1 (skew is kept). The result does not depend on the
    positive `scale`. The RQ decomposition of Hartley and Zisserman, Multiple View Geometry, section 6.2.4.

    Raises ValueError for a matrix that is not finite, is singular (no such camera) or whose left 3x3 has a negative
    determinant (a mirrored frame, or a negative overall scale).
    """
    matrix = np.asarray(projection, dtype=np.float64)
    if not np.isfinite(matrix).all():
        raise ValueError("it contains NaN or infinite numbers")
    matrix = matrix / (np.abs(matrix[:, :3]).max() or 1.0)
    lengths = np.linalg.norm(matrix[:, :3], axis=1, keepdims=True)
    # The volume spanned by the normalised rows.
    if lengths.min() == 0 or abs(np.linalg.det(matrix[:, :3] / lengths)) < SMALLEST_ROW_VOLUME:
        raise ValueError("it is singular, its left 3x3 cannot be inverted")
    if np.linalg.det(matrix[:, :3]) < 0:
        raise ValueError("it is mirrored, the determinant of its left 3x3 is negative (left-handed axes, or a sign)")
    upper, rotation = rq(matrix[:, :3])
    signs = np.sign(np.diag(upper))
    upper, rotation = upper * signs, signs[:, None] * rotation
    return upper / upper[2, 2], affine(rotation.T, -np.linalg.solve(matrix[:, :3], matrix[:, 3]))


def affine(linear: np.ndarray, shift: ArrayLike = (0.0, 0.0, 0.0)) -> np.ndarray:
    """The matrix [4, 4] of the map x -> linear [3, 3] @ x + shift [3], such as a pose or a similarity."""
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = linear, shift
    return matrix


def mean_up(c2w: np.ndarray) -> np.ndarray:
    """The mean up direction of cameras [V, 4, 4], a unit vector [3]; +z if their up vectors cancel out."""
    up = -c2w[:, :3, 1].mean(axis=0)
    length = np.linalg.norm(up)
    return up / length if length > LEAST_UP else np.array([0.0, 0.0, 1.0])


def similarity(source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Rotation, scale and translation that align points [M, 3] to others in the least squares sense (Umeyama 1991)."""
    middles = source.mean(axis=0), target.mean(axis=0)
    a, b = source - middles[0], target - middles[1]
    u, sizes, v = np.linalg.svd(b.T @ a)
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(u @ v))])
    turn = u @ np.diag(signs) @ v
    scale = float((sizes * signs).sum() / (a**2).sum())
    return turn, scale, middles[1] - scale * turn @ middles[0]


def image_pixels(width: int, height: int, resolution_level: float = 1) -> np.ndarray:
    """The pixel grid [h, w, 2] of (x, y) at which an image is rendered, h = height // level and w = width // level.

    As published (gen_rays_at): evenly spaced from the centre of the first pixel to that of the last one, both
    included, at every level >= 1. A level beyond the image size gives one row or column.
    """
    columns = np.linspace(0, width - 1, max(int(width // resolution_level), 1))
    rows = np.linspace(0, height - 1, max(int(height // resolution_level), 1))
    return np.stack(np.meshgrid(columns, rows, indexing="xy"), axis=-1)


def pixels_to_rays(pixels: np.ndarray, intrinsics: np.ndarray, c2w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Origins and unit directions [..., 3] of the rays through `pixels` [..., 2], in the frame of `c2w`.

    `rays_of` does the same for pixels of several views.
    """
    pixels = np.asarray(pixels, dtype=np.float64)
    homogeneous = np.concatenate([pixels, np.ones_like(pixels[..., :1])], axis=-1)
    to_world = np.asarray(c2w[:3, :3], dtype=np.float64) @ np.linalg.inv(np.asarray(intrinsics, dtype=np.float64))
    directions = homogeneous @ to_world.T
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    origins = np.broadcast_to(np.asarray(c2w[:3, 3], dtype=np.float64), directions.shape)
    return origins, directions


def unit_sphere_span(origins: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sampled interval near, far [..., 1] of each ray: 1 before and 1 behind its point nearest to the origin.

    As published (near_far_from_sphere). It is not the intersection with the unit sphere: its length is 2 for every unit
    direction, it contains the chord through the sphere, it exists for rays that miss the sphere, and `near` may be
    negative.
    """
    squared = np.sum(directions**2, axis=-1, keepdims=True)
    middle = -np.sum(origins * directions, axis=-1, keepdims=True) / squared
    return middle - SPAN_HALF_LENGTH, middle + SPAN_HALF_LENGTH


def interpolate_pose(c2w_a: np.ndarray, c2w_b: np.ndarray, ratio: float) -> np.ndarray:
    """The pose c2w [4, 4] at `ratio` in [0, 1] of the way from `c2w_a` to `c2w_b`.

    As published (gen_rays_between): the world-to-camera rotations are interpolated along the shortest arc and the
    world-to-camera translations linearly, so that what both cameras see stays in view between them.
    """
    w2c = np.linalg.inv(np.stack([c2w_a, c2w_b]).astype(np.float64))
    turn = Slerp([0.0, 1.0], Rotation.from_matrix(w2c[:, :3, :3]))(ratio).as_matrix()
    return np.linalg.inv(affine(turn, (1.0 - ratio) * w2c[0, :3, 3] + ratio * w2c[1, :3, 3]))


def camera_rays(pixels: np.ndarray, intrinsics: np.ndarray, c2w: np.ndarray) -> Rays:
    """The `Rays` through `pixels` [..., 2], flattened row-major to R = the number of pixels.

    Computed in float64 and rounded once to float32. A grid [h, w, 2] (see `image_pixels`) gives `ImageRays`.
    """
    rays, grid = _spanned(*pixels_to_rays(np.reshape(pixels, (-1, 2)), intrinsics, c2w)), np.asarray(pixels, np.float64)
    if grid.ndim != 3:
        return rays
    height, width = grid.shape[:2]
    first, steps = grid[0, 0], (grid[-1, -1] - grid[0, 0]) / np.maximum([width - 1, height - 1], 1)
    x, y = np.where(steps > 0, steps, 1.0)
    to_grid = np.array([[1 / x, 0, -first[0] / x], [0, 1 / y, -first[1] / y], [0, 0, 1]])
    camera = PinholeCamera(to_grid @ intrinsics, np.asarray(c2w, np.float64), width, height)
    return ImageRays(**vars(rays), camera=camera)


def rays_of(pixels: np.ndarray, view: np.ndarray, to_world: np.ndarray, origins: np.ndarray) -> Rays:
    """The `Rays` through pixels [R, 2] of views [R]; `camera_rays` for several views.

    Args:
        to_world: [V, 3, 3], the rotation of c2w times the inverse of the intrinsics.
        origins: [V, 3], the camera centres.
    """
    homogeneous = np.concatenate([pixels, np.ones((len(pixels), 1))], axis=1)
    directions = np.einsum("rij,rj->ri", to_world[view], homogeneous)
    directions /= np.sqrt(np.einsum("ri,ri->r", directions, directions))[:, None]
    return _spanned(origins[view], directions)


def _spanned(origins: np.ndarray, directions: np.ndarray) -> Rays:
    """Rays of origins and directions [R, 3] with their sampled intervals, rounded to float32."""
    near, far = unit_sphere_span(origins, directions)
    return Rays(*(np.ascontiguousarray(value, dtype=np.float32) for value in (origins, directions, near, far)))


def evenly_spaced(count: int, most: int) -> np.ndarray:
    """At most `most` indices, evenly spaced from 0 to `count` - 1."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))
