"""Camera poses as files give them: checked, made exactly rigid, and turned to OpenCV's axes."""

from __future__ import annotations

import numpy as np

from data.cameras import LARGEST_NUMBER
from data.errors import SceneError

# How far R^T R may be from a multiple of the identity, relative to that: three decimals in a text file reach 2e-3, and
# an image 1000 pixels wide is then off by a pixel or two.
RIGID_TOLERANCE = 5e-3

# OpenGL's camera, which Blender, instant-ngp and nerfstudio write, has y up and looks along -z.
OPENGL_TO_OPENCV = np.diag([1.0, -1.0, -1.0, 1.0])


def rigid_pose(where: str, key: str, matrix: np.ndarray) -> np.ndarray:
    """The camera-to-world `matrix` [4, 4] with its axes made orthonormal (the nearest rotation), its centre kept.

    A camera may be scaled, as a child of a scaled object is in Blender: the scale moves no ray. Raises SceneError,
    which names `where` and `key`, for axes that are mirrored, or not at right angles and of one length.
    """
    axes = matrix[:3, :3]
    with np.errstate(all="ignore"):  # numbers that overflow become NaN, which is refused too
        squares = axes.T @ axes
        squared_scale = np.trace(squares) / 3
        deviation = np.abs(squares / squared_scale - np.eye(3)).max()
    if not (0 < squared_scale < np.inf and deviation <= RIGID_TOLERANCE):
        raise SceneError(
            f"{where}: {key} is no rotation (its first three columns must be at right angles and of one length); "
            "correct it"
        )
    if not np.abs(matrix[:3, 3]).max() < LARGEST_NUMBER:
        raise SceneError(
            f"{where}: {key} puts the camera {np.abs(matrix[:3, 3]).max():.3g} from the origin, beyond "
            f"{LARGEST_NUMBER:g}; correct it"
        )
    left, _, right = np.linalg.svd(axes / np.sqrt(squared_scale))
    if np.linalg.det(left @ right) < 0:
        raise SceneError(f"{where}: {key} is mirrored (its axes are left-handed); correct it")
    pose = np.eye(4)
    pose[:3, :3] = left @ right
    pose[:3, 3] = matrix[:3, 3]
    return pose
