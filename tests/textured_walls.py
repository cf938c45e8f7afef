"""Photographs of two textured walls that meet, with exact cameras."""

import cv2
import numpy as np
from scipy.spatial.transform import Rotation

from data.io.images import write_image
from data.parsed_scene import Lens, ParsedScene, PosedImage

WIDTH, HEIGHT, FOCAL, VIEWS = 320, 240, 300.0, 9
K = np.array([[FOCAL, 0, (WIDTH - 1) / 2], [0, FOCAL, (HEIGHT - 1) / 2], [0, 0, 1]])


def texture(seed):
    noise = np.random.default_rng(seed).integers(0, 256, (600, 600, 3)).astype(np.float32)
    return np.clip((cv2.GaussianBlur(noise, (0, 0), 2.5) - 128) * 5 + 128, 0, 255).astype(np.uint8)


def poses():
    """On an arc before two walls that meet."""
    found = []
    for turn in np.linspace(-0.5, 0.5, VIEWS):
        c2w = np.eye(4)
        c2w[:3, :3] = Rotation.from_rotvec([0.08 * np.cos(5 * turn), -turn, 0]).as_matrix()
        c2w[:3, 3] = [3 * np.sin(turn), 0.3 * np.cos(7 * turn), -3 * np.cos(turn)]
        found.append(c2w)
    return found


def picture(c2w, walls):
    """Two walls that meet in the line x = z = 0."""
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for side, wall in zip((-1, 1), walls, strict=True):
        # The place of the texture's pixel (i, j) in the world: along the wall, and down.
        to_world = np.array([[side * 0.004, 0, 0], [0, 0.006, -1.8], [-0.0015, 0, 0], [0, 0, 1.0]])
        to_pixels = K @ np.linalg.inv(c2w)[:3] @ to_world
        warped = cv2.warpPerspective(wall, to_pixels, (WIDTH, HEIGHT))
        shown = cv2.warpPerspective(np.full(wall.shape[:2], 255, np.uint8), to_pixels, (WIDTH, HEIGHT)) > 128
        image[shown] = warped[shown]
    return image


def walls(folder):
    """The scene, with its photographs in `folder`."""
    sides, posed_images = [texture(1), texture(2)], []
    for number, c2w in enumerate(poses()):
        write_image(folder / f"{number}.png", picture(c2w, sides))
        posed_images.append(PosedImage(folder / f"{number}.png", Lens(K, size=(WIDTH, HEIGHT)), c2w))
    return ParsedScene("walls", folder, tuple(posed_images))


def off_walls(points):
    """Distances of points [N, 3] from the walls, along z."""
    return np.abs(points[:, 2] + 0.375 * np.abs(points[:, 0]))
