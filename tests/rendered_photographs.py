"""Photographs of a textured corner, three squares that meet at the origin, rendered without the code under test."""

import cv2
import numpy as np

from data.io.images import write_image

WIDTH, HEIGHT, FOCAL = 320, 240, 330.0


def textures(seed):
    """Three colour textures [256, 256, 3] float with structure at several scales."""
    rng = np.random.default_rng(seed)
    layers = [cv2.resize(rng.random((n, n, 9)), (256, 256), interpolation=cv2.INTER_CUBIC) for n in (12, 32, 80)]
    total = np.clip(sum(layers) / 1.5 - 0.5, 0, 1)
    return [total[..., 3 * side : 3 * side + 3].astype(np.float32) for side in range(3)]


def poses(count):
    """c2w [count, 4, 4] (OpenCV) on an arc about the diagonal, looking at the corner."""
    found = []
    for ratio in np.linspace(-1, 1, count):
        angle = np.radians(45 + 25 * ratio)
        centre = 4.2 * np.array([np.cos(angle) * 0.8, np.sin(angle) * 0.8, 0.6 + 0.1 * np.cos(3 * ratio)])
        forward = np.array([0.6, 0.6, 0.6]) - centre
        forward /= np.linalg.norm(forward)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        pose = np.eye(4)
        pose[:3, :3] = np.stack([right, np.cross(forward, right), forward], axis=1)
        pose[:3, 3] = centre
        found.append(pose)
    return np.array(found)


def render(pose, surfaces, width=WIDTH, height=HEIGHT, focal=FOCAL):
    """RGB uint8 [height, width, 3]; where no square is hit, grey."""
    x, y = np.meshgrid(np.arange(width) - (width - 1) / 2, np.arange(height) - (height - 1) / 2)
    rays = np.stack([x / focal, y / focal, np.ones_like(x)], axis=-1) @ pose[:3, :3].T
    nearest = np.full((height, width), np.inf)
    picture = np.full((height, width, 3), 0.5, np.float32)
    for axis, surface in enumerate(surfaces):
        with np.errstate(divide="ignore"):
            distance = -pose[axis, 3] / rays[..., axis]
        hit = pose[:3, 3] + distance[..., None] * rays
        u, v = np.moveaxis(np.delete(hit, axis, axis=-1), -1, 0) / 2.0
        inside = (distance > 0) & (distance < nearest) & (u >= 0) & (u <= 1) & (v >= 0) & (v <= 1)
        seen = cv2.remap(surface, (u * 255).astype(np.float32), (v * 255).astype(np.float32), cv2.INTER_LINEAR)
        picture[inside], nearest[inside] = seen[inside], distance[inside]
    return np.rint(picture * 255).astype(np.uint8)


def write_photographs(folder, count, seed=1, prefix="photo"):
    """Writes prefix_0.png ... of one corner; returns their poses."""
    folder.mkdir(parents=True, exist_ok=True)
    surfaces = textures(seed)
    for index, pose in enumerate(poses(count)):
        write_image(folder / f"{prefix}_{index}.png", render(pose, surfaces))
    return poses(count)
