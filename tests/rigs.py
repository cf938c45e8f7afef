"""Cameras and objects whose truth is known, for the tests of the region of interest, the overview and the health table.

Independent of the geometry of `data`, which it tests.
"""

from __future__ import annotations

import numpy as np
from synthetic_scene import look_at

from data.parsed_scene import SparsePoints
from data.scenes.frustum import Cameras
from data.scenes.scene import Scene

SIZE = (96, 72)  # width, height
FOCAL = 90.0
INTRINSICS = np.array([[FOCAL, 0, (SIZE[0] - 1) / 2], [0, FOCAL, (SIZE[1] - 1) / 2], [0, 0, 1.0]])
AXES = np.array([0.9, 0.55, 0.6])  # of the ellipsoid
MIDDLE = np.array([0.3, -0.2, 0.1])


def project(points, intrinsics, c2w):
    """Where `points` [..., 3] appear: pixels [..., 2] and depth [..., 1] along the camera's z axis."""
    in_camera = (points - c2w[:3, 3]) @ c2w[:3, :3]
    homogeneous = in_camera @ intrinsics.T
    return homogeneous[..., :2] / homogeneous[..., 2:], in_camera[..., 2:]


def around(directions, distance=4.0, middle=MIDDLE):
    """Cameras c2w [V, 4, 4] at `distance` from `middle` in these directions [V, 3], looking at it."""
    directions = np.asarray(directions, dtype=np.float64)
    poses = np.stack([look_at(distance * d / np.linalg.norm(d)) for d in directions])
    poses[:, :3, 3] += middle
    return poses


def sphere_of_cameras(count=24, seed=0, **changes):
    """From all sides."""
    return around(np.random.default_rng(seed).normal(size=(count, 3)), **changes)


def arc_of_cameras(count=15, degrees=180.0, **changes):
    """On an arc around z, a little from above."""
    turn = np.deg2rad(np.linspace(-degrees / 2, degrees / 2, count))
    return around(np.stack([np.cos(turn), np.sin(turn), 0.4 + 0.1 * np.cos(3 * turn)], axis=1), **changes)


def row_of_cameras(count=9, spread=2.0):
    """Side by side on the x axis, all looking along +z."""
    poses = np.tile(np.eye(4), (count, 1, 1))
    poses[:, 0, 3] = np.linspace(-spread, spread, count)
    return poses


def turned_round(poses):
    """The same places, looking the other way."""
    return poses @ np.diag([-1.0, 1.0, -1.0, 1.0])


def stacked(poses, size=SIZE):
    """The cameras of poses [V, 4, 4]."""
    return Cameras(np.tile(INTRINSICS, (len(poses), 1, 1)), np.asarray(poses), np.tile(size, (len(poses), 1)))


def ellipsoid_mask(c2w, axes=AXES, middle=MIDDLE, size=SIZE):
    """uint8 [H, W], 255 where the pixel's ray meets the ellipsoid."""
    x, y = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    rays = np.stack([(x - INTRINSICS[0, 2]) / FOCAL, (y - INTRINSICS[1, 2]) / FOCAL, np.ones(x.shape)], axis=-1)
    rays = (rays @ c2w[:3, :3].T) / axes
    origin = (c2w[:3, 3] - middle) / axes
    half_b, squared = rays @ origin, np.sum(rays**2, axis=-1)
    hits = (half_b**2 - squared * (origin @ origin - 1) > 0) & (half_b < 0)
    return np.where(hits, 255, 0).astype(np.uint8)


def ellipsoid_points(count=600, seed=1, axes=AXES, middle=MIDDLE):
    """[count, 3] on the surface."""
    normal = np.random.default_rng(seed).normal(size=(count, 3))
    return middle + axes * normal / np.linalg.norm(normal, axis=1, keepdims=True)


def cloud(xyz, n_views=5, error=0.5):
    """`SparsePoints` in grey."""
    count = len(xyz)
    return SparsePoints(xyz, np.full(count, n_views), np.full(count, error), np.full((count, 3), 128, np.uint8))


def moved(poses, matrix):
    """The cameras after the world was moved by a similarity [4, 4]: their axes stay unit vectors."""
    result = matrix @ poses
    result[:, :3, :3] /= np.cbrt(np.linalg.det(matrix[:3, :3]))
    return result


def textured_scene(poses, masks=True, seed=0, size=SIZE):
    """A scene in its working frame: the ellipsoid at the origin, half as large, with a fine pattern fixed to it."""
    axes = 0.8 * AXES
    silhouettes = [ellipsoid_mask(pose, axes, np.zeros(3), size) for pose in poses]
    noise = np.random.default_rng(seed)
    pictures = []
    for silhouette in silhouettes:
        pattern = noise.integers(60, 200, (*silhouette.shape, 1), dtype=np.uint8)
        pictures.append(np.where(silhouette[..., None] > 0, pattern, 100).repeat(3, axis=2).astype(np.uint8))
    cameras = stacked(poses, size)
    return Scene(
        name="ellipsoid",
        image_names=tuple(f"{index:03d}.png" for index in range(len(poses))),
        images=tuple(pictures),
        masks=tuple(silhouettes) if masks else None,
        intrinsics=cameras.intrinsics,
        c2w=cameras.c2w,
        scene_to_world=np.eye(4),
        bbox_min=-np.ones(3),
        bbox_max=np.ones(3),
    )
