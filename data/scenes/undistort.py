"""Undistortion: images as a pinhole would have taken them, and their intrinsics.

Pixel (0, 0) is the centre of the first pixel. The distortion model is that of OpenCV
(https://docs.opencv.org/4.10.0/d9/d0c/group__calib3d.html), or one of COLMAP, computed by pycolmap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import cv2
import numpy as np

from data.cameras import LONGEST_FOCAL_RATIO, PIXEL_CENTRE, SHORTEST_FOCAL_RATIO
from data.errors import SceneError
from data.io.headers import ImageError
from data.io.images import image_size
from data.parsed_scene import Lens, ParsedScene, PosedImage

if TYPE_CHECKING:
    import pycolmap

# Fraction of the image's width and height that must remain; if less remains, the coefficients are wrong.
SMALLEST_KEPT = 0.25
# Limit on the offset of the principal point from the image centre, in image widths and heights; crops give offsets of
# a few.
FARTHEST_PRINCIPAL = 20.0
UNSEEN = -1e6  # a coordinate outside every image
SAME_INTRINSICS = 1e-4  # relative and in pixels; above the rounding of float32
SIZE_ROUNDING = 1.0  # pixels by which a reduced image may deviate from the exact aspect ratio
# Networks that estimate cameras reduce images to sides that are multiples of their patches: VGGT of 14 pixels, DUSt3R
# of 16 to 512 (other cameras often have sides that are multiples of 16).
NETWORK_PATCH, DUST3R_PATCH, DUST3R_SIDE = 14, 16, 512


def resized(intrinsics: np.ndarray, size: tuple[int, int], new_size: tuple[int, int]) -> np.ndarray:
    """Intrinsics [3, 3] of an image of `size` (width, height) after a resize to `new_size`.

    A resize keeps the image's corners, which are half a pixel outside the centres of the corner pixels.
    """
    scale_x, scale_y = new_size[0] / size[0], new_size[1] / size[1]
    change = np.array([[scale_x, 0, (scale_x - 1) / 2], [0, scale_y, (scale_y - 1) / 2], [0, 0, 1.0]])
    return change @ intrinsics


def fitted(lens: Lens, size: tuple[int, int]) -> np.ndarray:
    """The intrinsics [3, 3] of a lens for its stored image of `size` (width, height).

    Raises ValueError if the image is neither of the size the lens was calibrated for, nor a reduction of it, nor one
    that a network reduced to the former.
    """
    if lens.size is None or tuple(lens.size) == size:
        return lens.intrinsics
    if _is_of_network(lens.size, size):
        return resized(lens.intrinsics, lens.size, size)
    ratio = np.sqrt(size[0] * size[1] / (lens.size[0] * lens.size[1]))
    if max(abs(ratio * lens.size[0] - size[0]), abs(ratio * lens.size[1] - size[1])) > SIZE_ROUNDING:
        raise ValueError(f"is {size[0]}x{size[1]} pixels and its camera {lens.size[0]}x{lens.size[1]}")
    return resized(lens.intrinsics, lens.size, size)


def _is_of_network(small: tuple[int, int], size: tuple[int, int]) -> bool:
    """Whether `small` (width, height) is a reduction of `size` with sides rounded to patches of a network."""
    scale, patch = max(small) / max(size), DUST3R_PATCH if max(small) == DUST3R_SIDE else NETWORK_PATCH
    if scale > 1 or small[0] % patch or small[1] % patch:
        return False
    return all(abs(side - scale * whole) <= patch / 2 for side, whole in zip(small, size, strict=True))


class Undistorter:
    """Undistorts the images of one lens and size."""

    def __init__(self, lens: Lens, size: tuple[int, int]) -> None:
        """Raises ValueError if too little of the image remains or its size does not fit the lens."""
        intrinsics = fitted(lens, size)
        x, y = intrinsics[:2, 2]
        if not (np.abs([x, y] - (np.array(size) - 1) / 2) / size <= FARTHEST_PRINCIPAL).all():
            raise ValueError(
                f"the principal point of its camera, ({x:.4g}, {y:.4g}), is far outside the {size[0]}x{size[1]} pixels "
                "of the image"
            )
        self._maps: tuple[np.ndarray, np.ndarray] | None = None
        self._valid = (0, 0, *size)  # left, top, right, bottom
        # A fisheye lens distorts with coefficients of 0, too.
        if lens.is_fisheye or lens.colmap_model or any(lens.distortion):
            self._maps = _source_pixels(intrinsics, lens, size)
            self._valid = _valid_rectangle(*self._maps, size)
        left, top, right, bottom = self._valid
        self.size = (right - left, bottom - top)  # of the undistorted images
        self.intrinsics = np.array([[1.0, 0, -left], [0, 1, -top], [0, 0, 1]]) @ intrinsics  # [3, 3], likewise

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """An image or mask [H, W] or [H, W, C], undistorted and cropped to valid pixels."""
        if self._maps is None:
            return image
        left, top, right, bottom = self._valid
        return cv2.remap(image, *self._maps, cv2.INTER_LINEAR)[top:bottom, left:right]


def _source_pixels(intrinsics: np.ndarray, lens: Lens, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """For each pixel of the pinhole image, x and y [H, W] float32 in the stored image."""
    if lens.colmap_model:
        grid = np.stack([*np.meshgrid(*map(np.arange, size)), np.ones(size[::-1])], axis=-1).reshape(-1, 3)
        pixels = colmap_camera(lens, intrinsics).img_from_cam(grid @ np.linalg.inv(intrinsics).T) - PIXEL_CENTRE
        # A direction that the lens does not see has NaN, which becomes a place outside every image.
        x, y = np.nan_to_num(pixels, nan=UNSEEN).astype(np.float32).T.reshape(2, *size[::-1])
        return x, y
    prepare: Callable = cv2.fisheye.initUndistortRectifyMap if lens.is_fisheye else cv2.initUndistortRectifyMap
    distortion = np.array(lens.distortion or (0.0,) * 4, np.float64)
    return prepare(intrinsics, distortion, np.eye(3), intrinsics, size, cv2.CV_32FC1)


def colmap_camera(lens: Lens, intrinsics: np.ndarray) -> pycolmap.Camera:
    """pycolmap's camera of a lens with a `colmap_model`, `intrinsics` being those of its image, perhaps reduced."""
    import pycolmap

    (fx, _, x), (_, fy, y), _ = intrinsics
    parameters = [fx, fy, x + PIXEL_CENTRE, y + PIXEL_CENTRE, *lens.distortion]
    width, height = lens.size or (0, 0)
    return pycolmap.Camera(model=lens.colmap_model, width=width, height=height, params=parameters)


def _valid_rectangle(x: np.ndarray, y: np.ndarray, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) of a large rectangle of valid pixels.

    The border with the largest fraction of invalid pixels is removed until none has any.
    """
    # Half a pixel: the outermost pixels extend half a pixel beyond their centres.
    is_valid = (x >= -0.5) & (x <= size[0] - 0.5) & (y >= -0.5) & (y <= size[1] - 0.5)
    left, top, right, bottom = 0, 0, *size
    while right - left > SMALLEST_KEPT * size[0] and bottom - top > SMALLEST_KEPT * size[1]:
        rows, columns = slice(top, bottom), slice(left, right)
        borders = (
            is_valid[rows, left],
            is_valid[top, columns],
            is_valid[rows, right - 1],
            is_valid[bottom - 1, columns],
        )
        invalid = [1.0 - border.mean() for border in borders]
        if not any(invalid):
            if is_valid[rows, columns].all():
                return left, top, right, bottom
            break
        worst = int(np.argmax(invalid))
        left, top, right, bottom = left + (worst == 0), top + (worst == 1), right - (worst == 2), bottom - (worst == 3)
    raise ValueError("has a lens distortion that leaves almost nothing of the image")


def lenses_of(parsed: ParsedScene, posed_images: Sequence[PosedImage]) -> list[Undistorter]:
    """The undistorter of each image, by the headers of the files; raises SceneError or ImageError."""
    sizes = _stored_sizes(posed_images)
    for posed, size in zip(posed_images, sizes, strict=True):
        width, height = posed.lens.size or size
        focal = np.abs(np.diag(posed.lens.intrinsics)[:2])
        longest = LONGEST_FOCAL_RATIO * max(width, height)
        for wrong, words in ((~(focal <= longest), "too long"), (focal < SHORTEST_FOCAL_RATIO * width, "too short")):
            if wrong.any():
                raise SceneError(
                    f"{parsed.source}: the lens of {posed.path.name} cannot be used: its focal length of "
                    f"{focal[wrong][0]:.3g} pixels is {words} for an image of {width}x{height}; correct it or leave "
                    "that view out"
                )
    return undistorters(posed_images, sizes)


def _stored_sizes(posed_images: Sequence[PosedImage]) -> list[tuple[int, int]]:
    """(width, height) of each image file; raises ImageError if its mask or images of the same camera differ in size."""
    sizes = [posed.size or image_size(posed.path) for posed in posed_images]
    first: dict[tuple[int, int], PosedImage] = {}
    for posed, size in zip(posed_images, sizes, strict=True):
        own, here = posed.lens.intrinsics, "{}x{}".format(*size)
        first.setdefault(size, posed)
        for (width, height), other in first.items():
            is_same = np.allclose(own, other.lens.intrinsics, rtol=SAME_INTRINSICS, atol=SAME_INTRINSICS)
            if posed.lens.size is None and (width, height) != size and is_same:
                raise ImageError(
                    f"{posed.path}: is {here} pixels and {other.path.name} {width}x{height}, with the same intrinsics; "
                    "photographs of one camera must have one size"
                )
        if posed.mask_path is not None and (mask_size := image_size(posed.mask_path)) != size:
            raise ImageError(
                f"{posed.mask_path}: is {mask_size[0]}x{mask_size[1]} pixels and its photograph {posed.path.name} "
                f"{here}; both must have one size"
            )
    return sizes


def undistorters(posed_images: Sequence[PosedImage], sizes: Sequence[tuple[int, int]]) -> list[Undistorter]:
    """An undistorter for each image, which has a size (width, height); images of one lens share it.

    Raises ImageError for a size or a distortion that does not fit.
    """
    known: dict[tuple, Undistorter] = {}
    lenses = []
    for posed, size in zip(posed_images, sizes, strict=True):
        key = (*posed.lens.key, size)
        if key not in known:
            try:
                known[key] = Undistorter(posed.lens, size)
            except ValueError as error:
                raise ImageError(f"{posed.path}: {error}; correct the image or its camera") from error
        lenses.append(known[key])
    return lenses
