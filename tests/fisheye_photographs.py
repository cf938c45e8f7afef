"""Photographs of a textured room by a lens that spreads angles evenly, rendered without the code under test."""

import cv2
import numpy as np

from data.io.images import write_image

WIDTH, HEIGHT = 320, 240
ROOM, BLOCK = 3.0, 0.5  # half the sides of the room and of a block in its middle
TEXTURE = 512  # pixels per side
ROUGHNESS = (6, 14, 34)  # cells of the texture's layers per side


def textures(seed):
    """A colour texture [TEXTURE, TEXTURE, 3] for each face of a cube."""
    rng, size = np.random.default_rng(seed), (TEXTURE, TEXTURE)
    for _ in range(6):
        layers = [cv2.resize(rng.random((n, n, 3)), size, interpolation=cv2.INTER_CUBIC) for n in ROUGHNESS]
        yield np.clip(sum(layers) / 1.5 - 0.5, 0, 1).astype(np.float32)


def cube(origin, rays, half, faces, from_inside):
    """Distances [H, W], infinite where the cube is missed, and colours [H, W, 3] of a cube around the origin."""
    with np.errstate(divide="ignore", invalid="ignore"):
        near, far = np.sort(np.stack([(-half - origin) / rays, (half - origin) / rays]), axis=0)
    enters, leaves = near.max(axis=-1), far.min(axis=-1)
    distance = leaves if from_inside else np.where((enters <= leaves) & (enters > 0), enters, np.inf)
    hit = origin + np.where(np.isfinite(distance), distance, 0.0)[..., None] * rays
    axis, colours = np.argmax(np.abs(hit), axis=-1), np.zeros((*distance.shape, 3), np.float32)
    for face, texture in enumerate(faces):
        on_face = (axis == face // 2) & ((np.take_along_axis(hit, axis[..., None], -1)[..., 0] > 0) == bool(face % 2))
        places = ((np.delete(hit, face // 2, axis=-1) / half + 1) / 2 * (TEXTURE - 1)).astype(np.float32)
        colours[on_face] = cv2.remap(texture, places[..., 0], places[..., 1], cv2.INTER_LINEAR)[on_face]
    return distance, colours


def poses(count):
    """c2w [count, 4, 4] (OpenCV) on a wave around the block, looking at it."""
    for angle in np.linspace(0, 2 * np.pi, count, endpoint=False):
        centre = np.array([1.6 * np.cos(angle), 1.6 * np.sin(angle), 0.6 + 0.3 * np.sin(3 * angle)])
        forward = -centre / np.linalg.norm(centre)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        pose = np.eye(4)
        pose[:3] = np.stack([right, np.cross(forward, right), forward, centre], axis=1)
        yield pose


def write_fisheye(folder, count, degrees):
    """Writes 00.png ... whose width covers `degrees`; returns the poses [count, 4, 4] and the focal length, pixels."""
    folder.mkdir(parents=True)
    room, block, found = list(textures(1)), list(textures(2)), np.array(list(poses(count)))
    focal = WIDTH / np.radians(degrees)
    x, y = np.meshgrid(np.arange(WIDTH) - (WIDTH - 1) / 2, np.arange(HEIGHT) - (HEIGHT - 1) / 2)
    radius = np.hypot(x, y)
    aside = np.sin(radius / focal) / radius
    in_camera = np.stack([aside * x, aside * y, np.cos(radius / focal)], axis=-1)
    for index, pose in enumerate(found):
        rays, origin = in_camera @ pose[:3, :3].T, pose[:3, 3]
        _, picture = cube(origin, rays, ROOM, room, True)
        distance, colours = cube(origin, rays, BLOCK, block, False)
        picture[np.isfinite(distance)] = colours[np.isfinite(distance)]
        picture[radius > focal * np.pi / 2] = 0.0  # the edge of the lens
        write_image(folder / f"{index:02}.png", np.rint(255 * picture).astype(np.uint8))
    return found, focal
