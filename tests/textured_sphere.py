"""A sphere with a solid texture, drawn from formulas, and cameras in a ring around it."""

from __future__ import annotations

import numpy as np
from synthetic_scene import look_at

from data.roi.frustum import Cameras
from data.scenes.scene import Scene

RADIUS, SIZE, FOCAL = 0.6, 120, 180.0
INTRINSICS = np.array([[FOCAL, 0, 59.5], [0, FOCAL, 59.5], [0, 0, 1]])


def directions_from(camera):
    """Directions [H, W, 3] of the pixels with a component of 1 along the optical axis."""
    x, y = np.meshgrid(np.arange(SIZE), np.arange(SIZE))
    local = np.stack([(x - 59.5) / FOCAL, (y - 59.5) / FOCAL, np.ones(x.shape)], axis=-1)
    return local @ camera[:3, :3].T


def sphere_depth(camera):
    """The depth [H, W] of the sphere along the optical axis; 0 beside it."""
    towards, centre = directions_from(camera), camera[:3, 3]
    a, b, c = (towards**2).sum(-1), towards @ centre, centre @ centre - RADIUS**2
    root = b * b - a * c
    return np.where(root > 0, (-b - np.sqrt(np.maximum(root, 0))) / a, 0)


def solid_texture(points):
    """Grey values in [0, 1] at points [..., 3]: waves of random directions, so that no place looks like another."""
    rng = np.random.default_rng(5)
    waves = rng.normal(size=(3, 40)) * 50
    return 0.5 + 0.12 * np.sin(points @ waves + rng.uniform(0, 6, 40)).sum(-1) / np.sqrt(40) * 2


def drawn(camera, paint=solid_texture):
    depth = sphere_depth(camera)
    points = camera[:3, 3] + directions_from(camera) * depth[..., None]
    grey = np.where(depth > 0, np.clip(paint(points), 0, 1), 0)
    return np.repeat((255 * grey).round().astype(np.uint8)[..., None], 3, axis=2)


def ring(count):
    """Cameras at 3 radii around the sphere, 8 degrees apart."""
    angles = np.radians(8.0) * np.arange(count)
    poses = np.stack([look_at(3 * np.array([np.cos(a), np.sin(a), 0.3 * np.sin(3 * a)])) for a in angles])
    return Cameras(np.repeat(INTRINSICS[None], count, 0), poses, np.full((count, 2), SIZE, np.float64))


def scene_of(cameras, paint=solid_texture):
    count = len(cameras)
    return Scene(
        name="sphere",
        image_names=tuple(f"{view}.png" for view in range(count)),
        images=tuple(drawn(pose, paint) for pose in cameras.c2w),
        masks=None,
        intrinsics=cameras.intrinsics,
        c2w=cameras.c2w,
        scene_to_world=np.eye(4),
        bbox_min=-np.ones(3),
        bbox_max=np.ones(3),
    )
