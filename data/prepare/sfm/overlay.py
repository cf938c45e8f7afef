"""What is equal in all photographs, such as a watermark: it is left out of matching, since it does not move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from data.cameras import evenly_spaced
from data.io.images import read_image, rgb_of, write_image
from data.pixels import size_within

OVERLAY = "overlay.png"  # in the work folder: 0 where the photographs are equal
MOST_IMAGES, LEAST_IMAGES, SIDE = 24, 5, 640  # that are compared; longer side at which they are
LEAST_EDGE, MARGIN = 6.0, 0.01  # levels per pixel; of the longer side, on which features near an edge depend
MOST_SHARE = 0.5  # of the image; a camera that stands still has more in common


def write_overlay(work: Path, images: Sequence[Path], size: tuple[int, int]) -> bool:
    """Write OVERLAY for images of one `size` (width, height) if a part of them is equal; returns whether it is.

    There the median of their gradients is not zero (Dekel et al., CVPR 2017).
    """
    reduced, gradients = size_within(size, SIDE)[0], []
    for index in evenly_spaced(len(images), MOST_IMAGES):
        small = cv2.resize(rgb_of(read_image(images[index])), reduced, interpolation=cv2.INTER_AREA)
        grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
        gradients.append([cv2.Sobel(grey, cv2.CV_32F, dx, dy, scale=1 / 8) for dx, dy in ((1, 0), (0, 1))])
    is_edge = np.linalg.norm(np.median(gradients, axis=0), axis=0) > LEAST_EDGE
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * round(MARGIN * max(reduced)) + 1,) * 2)
    equal = cv2.dilate(is_edge.astype(np.uint8), kernel)
    if len(gradients) < LEAST_IMAGES or not 0.0 < equal.mean() <= MOST_SHARE:
        return False
    write_image(work / OVERLAY, 255 * (1 - cv2.resize(equal, size, interpolation=cv2.INTER_NEAREST)))
    return True


def overlay_note(work: Path) -> list[str]:
    """A note on what `write_overlay` found; none if there is nothing."""
    if not (work / OVERLAY).is_file():
        return []
    equal = read_image(work / OVERLAY)[..., 0] == 0
    y, x = np.nonzero(equal)
    return [
        f"{equal.mean():.0%} of the image is equal in all photographs (x {x.min()} to {x.max()}, y {y.min()} to "
        f"{y.max()}), such as a watermark: left out of matching, not of the colours; use photographs without it"
    ]
