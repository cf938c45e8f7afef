"""Images as arrays: levels as floats, sizes, and values between pixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Levels(NamedTuple):
    """The lowest and the highest level that images of 16 bits use."""

    low: int
    high: int


def to_float(image: np.ndarray) -> np.ndarray:
    """Unsigned integers of any shape as float32 in [0, 1], divided by 255 or 65535.

    The published code divides by 256, which makes white 0.996.
    """
    return image.astype(np.float32) / np.float32(np.iinfo(image.dtype).max)


def to_uint8(image: np.ndarray) -> np.ndarray:
    """Floats as uint8, clipped to [0, 1] and rounded; the exact inverse of `to_float` for uint8."""
    return np.rint(np.clip(image, 0.0, 1.0) * 255.0).astype(np.uint8)


def eight_bits(image: np.ndarray) -> np.ndarray:
    """Unsigned integers of any shape as uint8; the same array if it is uint8 already."""
    return image if image.dtype == np.uint8 else to_uint8(to_float(image))


def size_of(image: np.ndarray) -> tuple[int, int]:
    """(width, height) of an image [H, W] or [H, W, C]."""
    return image.shape[1], image.shape[0]


def size_within(size: tuple[int, int], longest: int) -> tuple[tuple[int, int], float]:
    """(width, height) reduced so that no side exceeds `longest` pixels, and the scale factor, at most 1."""
    scale = min(1.0, longest / max(size))
    return (max(1, round(size[0] * scale)), max(1, round(size[1] * scale))), scale


def sample_bilinear(image: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """`image` [H, W] or [H, W, C] of unsigned integers sampled at `pixels` [..., 2] (x, y): float32 [..., C] in [0, 1].

    Bilinear between pixel centres; positions outside take the value at the border.
    """
    height, width = image.shape[:2]
    flat, columns = image.reshape(height * width, *image.shape[2:]), [1] * (image.ndim - 2)

    def between(places: np.ndarray, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        places = np.clip(places, 0, last)
        before = np.minimum(places.astype(np.intp), max(last - 1, 0))
        return (
            before,
            np.minimum(before + 1, last),
            (places - before).astype(np.float32).reshape(*places.shape, *columns),
        )

    x0, x1, right = between(pixels[..., 0], width - 1)
    y0, y1, down = between(pixels[..., 1], height - 1)
    y0, y1 = y0 * width, y1 * width
    upper_left, lower_left = to_float(flat[y0 + x0]), to_float(flat[y1 + x0])
    upper = upper_left + (to_float(flat[y0 + x1]) - upper_left) * right
    lower = lower_left + (to_float(flat[y1 + x1]) - lower_left) * right
    return upper + (lower - upper) * down
