"""Checks of the poses in files, and of the numbers in the names of images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data.cameras import LARGEST_NUMBER
from data.errors import SceneError, listed

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


def numbers(paths: Sequence[Path]) -> list[int] | None:
    """The number of each file name; None if the names are not numbered.

    Names are numbered if they differ in exactly one number, with or without leading zeros: IMG_7.png, IMG_12.jpg.
    """
    parts = [re.split(r"([0-9]+)", path.stem) for path in paths]
    if not parts or len({tuple(part[::2]) for part in parts}) > 1:
        return None
    columns = [[int(digits) for digits in column] for column in list(zip(*parts, strict=True))[1::2]]
    varying = [column for column in columns if len(set(column)) > 1] if len(paths) > 1 else columns
    return varying[0] if len(varying) == 1 and len(set(varying[0])) == len(paths) else None


def require_same_numbers(images: Sequence[Path], masks: Sequence[Path]) -> None:
    """Raises SceneError if both are numbered and a mask has another number than its image."""
    of_images, of_masks = numbers(images), numbers(masks)
    if of_images is None or of_masks is None:
        return
    for image, mask, own, other in zip(images, masks, of_images, of_masks, strict=True):
        if own != other:
            raise SceneError(
                f"{mask.parent}: in order {mask.name} is the mask of {image.name}, but their numbers differ; restore "
                "the missing photograph or mask, or give each mask the number of its photograph"
            )


def require_no_gap(source: Path, images: Sequence[Path], cameras: int) -> None:
    """Raises SceneError if a number is missing among the images and `source` has a camera for it.

    Image i gets camera i, so all images after the gap would get the wrong camera. `cameras` is the number of cameras.
    The numbers of the names may start at 0, as those of the cameras, or at any other number.
    """
    found = numbers(images)
    if found is None or cameras <= len(found):
        return
    first, last = min(found), max(found)
    start = 0 if cameras > last else first  # the number in the name of camera 0's image
    missing = sorted({*range(start, min(last, start + cameras))} - set(found)) if cameras > last - start else []
    if not missing:
        return
    named = listed([str(number) for number in missing])
    after = next(path for path, number in zip(images, found, strict=True) if number > missing[0])
    raise SceneError(
        f"{images[0].parent}: the names skip {named}, and {source.name} has {cameras} cameras for "
        f"{len(found)} photographs, so from {after.name} on each would get the camera of another one; renumber the "
        "cameras, or restore the missing photographs and select by dataset.train_views"
    )
