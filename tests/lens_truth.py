"""Cameras with known distortion on the bundled scene, with which tests write files of other programs."""

import cv2
import numpy as np
from synthetic_scene import NAMES, VIEWS, photographs, read

from data.io.images import read_image

PLACES = np.array([[4.0, -7.0, 1.5], [4.6, -6.5, 1.9], [3.1, -7.9, 1.0]])
K1, K2, K3, P1, P2, K4 = 0.05, -0.02, 0.01, 0.003, -0.002, 0.004
PLANE, FISHEYE = (K1, K2, P1, P2, K3), (K1, K2, K3, K4)


class Truth:
    """The true cameras with a lens of one's own: pixels count from the centre of the first pixel."""

    def __init__(self, folder, distortion=(), fish=False, centre=None, focal=None):
        self.posed = photographs(folder, NAMES)
        self.height, self.width = read_image(self.posed[0].path).shape[:2]
        self.longer = max(self.width, self.height)
        self.middle = np.array([self.width - 1, self.height - 1]) / 2
        own = self.posed[0].lens.intrinsics
        self.focal = np.array([own[0, 0]] * 2 if focal is None else focal)
        self.centre = np.array(self.middle if centre is None else centre, dtype=float)
        self.distortion, self.fish = np.array(distortion or (0.0,) * 4), fish
        self.w2c = [np.linalg.inv(image.c2w) for image in self.posed]
        self.c2w = [image.c2w for image in self.posed]

    def pixels(self, view):
        intrinsics = np.array([[self.focal[0], 0, self.centre[0]], [0, self.focal[1], self.centre[1]], [0, 0, 1.0]])
        return projected(self.w2c[view], intrinsics, self.distortion, self.fish)


def projected(w2c, intrinsics, distortion, fish):
    rotation, centre = cv2.Rodrigues(w2c[:3, :3])[0], w2c[:3, 3]
    project = cv2.fisheye.projectPoints if fish else cv2.projectPoints
    coefficients = np.array(distortion if len(distortion) else (0.0,) * 4)
    return project(PLACES[:, None], rotation, centre, intrinsics, coefficients)[0][:, 0]


def require_same(folder, truth):
    """The scene shows the places where the truth does, and its own points are the places."""
    parsed, scene = read(folder)
    assert len(parsed.images) == len(scene.images) == VIEWS
    for view, image in enumerate(parsed.images):
        found = projected(np.linalg.inv(image.c2w), image.lens.intrinsics, image.lens.distortion, image.lens.is_fisheye)
        assert np.abs(found - truth.pixels(view)).max() < 0.01, image.path.name
    if parsed.points is not None:
        assert np.allclose(parsed.points.xyz, PLACES)
    return parsed
