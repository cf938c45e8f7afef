"""What is equal in all photographs, such as a watermark: it is left out of matching, since it does not move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from data.cameras import evenly_spaced
from data.io.images import read_image, rgb_of, write_image
from data.pixels import size_within

OVERLAY = "overlay"  # in the work folder: NAME.png of each image, 0 where the images of its size are equal
MOST_IMAGES, LEAST_IMAGES, SIDE = 24, 5, 640  # that are compared; longer side at which they are
LEAST_EDGE, SURE = 6.0, 4.0  # of the median gradient of an edge: levels per pixel, standard errors
MEDIAN_ERROR = 1.86  # of normal values: standard error of their median, in median absolute deviations
MARGIN = 0.01  # of the longer side, on which features near an edge depend
LEAST_SHARE, MOST_SHARE = 0.003, 0.5  # of the image; a camera that stands still has more in common


def write_overlay(work: Path, images: Sequence[Path], sizes: Sequence[tuple[int, int]]) -> bool:
    """Write OVERLAY if a part of the images of a size (width, height) is equal; returns whether it is."""
    by_size: dict[tuple[int, int], list[Path]] = {}
    for path, size in zip(images, sizes, strict=True):
        by_size.setdefault(size, []).append(path)
    masks = {size: _unequal(paths, size) for size, paths in by_size.items()}
    if all(mask.all() for mask in masks.values()):
        return False
    (work / OVERLAY).mkdir()
    for path, size in zip(images, sizes, strict=True):
        write_image(work / OVERLAY / f"{path.name}.png", masks[size])
    return True


def _unequal(images: Sequence[Path], size: tuple[int, int]) -> np.ndarray:
    """uint8 [H, W], 0 where images are equal: there the median of their gradients is not zero (Dekel et al., CVPR
    2017).
    """
    reduced, gradients = size_within(size, SIDE)[0], []
    for index in evenly_spaced(len(images), MOST_IMAGES):
        small = cv2.resize(rgb_of(read_image(images[index])), reduced, interpolation=cv2.INTER_AREA)
        grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
        gradients.append([cv2.Sobel(grey, cv2.CV_32F, dx, dy, scale=1 / 8) for dx, dy in ((1, 0), (0, 1))])
    typical = np.median(gradients, axis=0)
    deviation = np.linalg.norm(np.median(np.abs(gradients - typical), axis=0), axis=0)
    error = MEDIAN_ERROR * deviation / len(gradients) ** 0.5
    is_edge = np.linalg.norm(typical, axis=0) > np.maximum(LEAST_EDGE, SURE * error)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * round(MARGIN * max(reduced)) + 1,) * 2)
    equal = cv2.dilate(is_edge.astype(np.uint8), kernel)
    if len(gradients) < LEAST_IMAGES or not LEAST_SHARE <= equal.mean() <= MOST_SHARE:
        equal[:] = 0
    return 255 * (1 - cv2.resize(equal, size, interpolation=cv2.INTER_NEAREST))


def overlay_note(work: Path) -> list[str]:
    """A note on what `write_overlay` found; none if there is nothing."""
    for path in sorted((work / OVERLAY).glob("*.png")):
        equal = read_image(path)[..., 0] == 0
        if equal.any():
            y, x = np.nonzero(equal)
            return [
                f"{equal.mean():.0%} of the image is equal in all photographs (x {x.min()} to {x.max()}, y {y.min()} "
                f"to {y.max()}), such as a watermark: left out of matching, not of the colours; use photographs "
                "without it"
            ]
    return []
