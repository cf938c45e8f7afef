"""EXIF data: orientation and focal length."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import Image

from data.errors import DAMAGE

# Tags of EXIF 2.32 (CIPA DC-008), sections 4.6.4 and 4.6.5.
ORIENTATION = 0x0112
EXIF_BLOCK = 0x8769
FOCAL_LENGTH_35MM = 0xA405
FILM_DIAGONAL = math.hypot(36.0, 24.0)  # millimetres; the equivalent focal length refers to the diagonal of this film

# Millimetres, 35 mm equivalent. Values outside this range are wrong entries.
SHORTEST_FOCAL, LONGEST_FOCAL = 5.0, 2000.0


def read_exif(path: Path) -> tuple[int, float | None]:
    """Orientation 1..8 (1: as stored) and the 35 mm equivalent focal length in millimetres, None if unknown.

    A file with missing or damaged EXIF data gives (1, None).
    """
    try:
        with Image.open(path) as image:
            tags = image.getexif()
            orientation = tags.get(ORIENTATION, 1)
            focal = float(tags.get_ifd(EXIF_BLOCK).get(FOCAL_LENGTH_35MM, math.nan))
    except (*DAMAGE, OSError, Image.DecompressionBombError):
        return 1, None
    in_range = SHORTEST_FOCAL <= focal <= LONGEST_FOCAL
    return orientation if orientation in range(1, 9) else 1, focal if in_range else None


def focal_pixels(focal_35mm: float, size: tuple[int, int]) -> float:
    """The focal length in pixels of an uncropped image of `size` (width, height)."""
    return focal_35mm / FILM_DIAGONAL * math.hypot(*size)


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """`pixels` [H, W, ...] rotated upright; `orientation` as in EXIF: the sides that row 0 and column 0 show."""
    if orientation >= 5:  # stored rotated by 90 degrees: row 0 is the left or the right side
        pixels = np.swapaxes(pixels, 0, 1)
    flips_rows = orientation in (3, 4, 7, 8)
    flips_columns = orientation in (2, 3, 6, 7)
    pixels = pixels[::-1] if flips_rows else pixels
    return np.ascontiguousarray(pixels[:, ::-1] if flips_columns else pixels)


def upright_size(path: Path) -> tuple[int, int] | None:
    """(width, height) of the photograph as `upright` shows it; None if the file cannot be read so."""
    try:
        with Image.open(path) as image:
            width, height = image.size
    except (*DAMAGE, OSError, Image.DecompressionBombError):
        return None
    return (height, width) if read_exif(path)[0] >= 5 else (width, height)
