"""Checks camera poses of files and makes them exactly rigid."""

from __future__ import annotations

import numpy as np

from data.cameras import LARGEST_NUMBER
from data.errors import SceneError

# Relative deviation of R^T R from a multiple of the identity. Three decimals in a text file give up to 2e-3, an error
# of one or two pixels in an image 1000 pixels wide.
RIGID_TOLERANCE = 5e-3

# OpenGL's camera axes, used by Blender, instant-ngp and nerfstudio: y up, looking along -z.
OPENGL_TO_OPENCV = np.diag([1.0, -1.0, -1.0, 1.0])


def rigid_pose(where: str, key: str, matrix: np.ndarray) -> np.ndarray:
    """The camera-to-world `matrix` [4, 4] with its axes replaced by the nearest rotation; the centre is kept.

    A uniform scale of the axes, as in Blender for children of scaled objects, is removed: it does not change the rays.
    Raises SceneError, naming `where` and `key`, for axes that are mirrored, not orthogonal or of different lengths.
    """
    axes = matrix[:3, :3]
    with np.errstate(all="ignore"):  # overflow gives NaN, which is rejected below
        squares = axes.T @ axes
        squared_scale = np.trace(squares) / 3
        deviation = np.abs(squares / squared_scale - np.eye(3)).max()
    if not (0 < squared_scale < np.inf and deviation <= RIGID_TOLERANCE):
        raise SceneError(
            f"{where}: {key} is not a rotation (its first three columns must be orthogonal and of equal length); "
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
