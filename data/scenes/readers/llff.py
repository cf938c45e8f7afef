"""The format of LLFF: poses_bounds.npy and images/.

    folder/poses_bounds.npy   [N, 17]: a pose [3, 5] row by row, then the nearest and farthest depth of the points
    folder/images/            N images, in the order of names that Python's `sorted` has: 10.png before 2.png
    folder/images_4/, ...     reduced copies, read if images/ is missing

The pose's columns are the camera's axes in the world, down, right and backwards, then its centre, then height, width
and focal length in pixels (https://github.com/Fyusion/LLFF at c6e27b1, llff/poses/pose_utils.py, load_colmap_data); one
focal length for both axes. The world is COLMAP's. Height, width and focal length refer to the images that COLMAP used;
`Lens.size` stores that size, so that the intrinsics of reduced images are scaled.

Half pixels: the format drops COLMAP's principal point, which by default is the image centre: ((w - 1) / 2, (h - 1) / 2)
here. It also drops the distortion; if the COLMAP model is available (sparse/), read that instead. The depths are only
used for a note.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data.errors import DamagedError, SceneError
from data.io.images import image_size, left_out, photographs_folder, require_images
from data.io.untrusted import positive, read_npy, rigid_pose, side
from data.parsed_scene import CameraFiles, Lens, ParsedScene, PosedImage
from data.scenes.readers.transforms import require_same_shape

CAMERA_FILE = "poses_bounds.npy"
COLUMNS = 17
MAX_FILE_BYTES = 1 << 24  # 120 000 images


def read_llff(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / CAMERA_FILE
    table = _read_table(source)
    chosen = photographs_folder(folder)
    if chosen is None:
        raise SceneError(f"{folder}: has no folder images/ with the photographs")
    images = sorted(require_images(chosen), key=lambda path: path.name)  # the order of the table
    if len(images) != len(table):
        raise SceneError(
            f"{source}: contains {len(table)} cameras and {chosen} {len(images)} photographs; "
            "provide all photographs that it was made from"
        )
    posed_images = [
        _posed_image(f"{source}: row {index} ({image.name})", row, image)
        for index, (row, image) in enumerate(zip(table, images, strict=True))
    ]
    near, far = table[:, 15].min(), table[:, 16].max()
    notes = left_out(chosen)
    notes += (f"{CAMERA_FILE}: the depths of the scene are {near:.4g} to {far:.4g}",) if 0 < near < far else ()
    return ParsedScene(name=folder.resolve().name, source=source, images=tuple(posed_images), notes=notes)


def _read_table(source: Path) -> np.ndarray:
    """float64 [N, 17], finite, N at least 1."""
    if not source.is_file():
        raise SceneError(f"{source.parent}: has no {CAMERA_FILE}, which holds the cameras")
    try:
        table = read_npy(source, MAX_FILE_BYTES)
    except (DamagedError, OSError) as error:
        raise SceneError(f"{source}: cannot be read as an npy file of numbers ({error}); write it again") from error
    if table.ndim != 2 or table.shape[1] != COLUMNS or len(table) == 0 or table.dtype.kind not in "fiu":
        raise SceneError(
            f"{source}: contains {table.dtype} of shape {list(table.shape)} and must contain numbers [N, {COLUMNS}]; "
            "write it again"
        )
    wrong = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(wrong):
        raise SceneError(
            f"{source}: row {wrong[0]} contains NaN or infinite numbers; correct it or leave that photograph out"
        )
    return table.astype(np.float64)


def _posed_image(where: str, row: np.ndarray, image: Path) -> PosedImage:
    pose = row[:15].reshape(3, 5)
    size = side(where, "the width", float(pose[1, 4])), side(where, "the height", float(pose[0, 4]))
    focal = positive(where, "the focal length", float(pose[2, 4]))
    actual = image_size(image)
    require_same_shape(where, size, actual)
    down, right, backwards, centre = pose[:, :4].T
    c2w = np.eye(4)
    c2w[:3] = np.stack([right, down, -backwards, centre], axis=1)
    intrinsics = np.array([[focal, 0, (size[0] - 1) / 2], [0, focal, (size[1] - 1) / 2], [0, 0, 1]])
    return PosedImage(image, Lens(intrinsics, size=size), rigid_pose(where, "the pose", c2w), size=actual)
