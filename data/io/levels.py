"""Images of 16 bits that use a small part of their range, as of cameras of 12 bits and thermal ones."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

SMALL_RANGE = 2**14  # levels: a quarter of 16 bits
OUTLIERS = 1e-4  # fraction of the colours of an image, such as dead pixels


class Levels(NamedTuple):
    """The lowest and the highest level that images of 16 bits use."""

    low: int
    high: int


def levels_of(image: np.ndarray) -> Levels:
    """The levels of an image without the outermost OUTLIERS of its colours, such as dead pixels."""
    low, high = np.quantile(image[..., :3], (OUTLIERS, 1.0 - OUTLIERS))
    return Levels(int(low), math.ceil(high))


def small_range(levels: Iterable[Levels]) -> Levels | None:
    """The range to which images of 16 bits are stretched, the same for all; None if they use a quarter of the levels.

    It begins at 0 unless the lowest level is over half of the highest one, and then ends at a power of two.
    """
    each = list(levels)
    low, high = min((low for low, _ in each), default=0), max((high for _, high in each), default=0)
    if not 0 < high - low < SMALL_RANGE:
        return None
    return Levels(low, high) if 2 * low > high else Levels(0, 2 ** high.bit_length() - 1)


def range_words(levels: Levels) -> str:
    """A note on images that are stretched."""
    return f"16 bits of which only {levels.low} to {levels.high} are used, stretched to the whole range, equally in all"


def stretched(image: np.ndarray, levels: Levels | None) -> np.ndarray:
    """A uint16 image [H, W, C] with the colours at `levels` mapped to all 16 bits; other images as they are."""
    if levels is None or image.dtype != np.uint16:
        return image
    shares = (image[..., :3].astype(np.float32) - levels.low) / (levels.high - levels.low)
    colors = np.rint(65535 * np.clip(shares, 0.0, 1.0)).astype(np.uint16)
    return np.concatenate([colors, image[..., 3:]], axis=2)
