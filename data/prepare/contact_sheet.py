"""A contact sheet of masks: the background is darkened, the outline is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from data.cameras import evenly_spaced

THUMBNAIL = 200  # pixels of the longer side
MOST = 60  # images on a sheet, evenly chosen
OUTLINE = (255, 64, 0)
DIM = 0.3  # brightness of the background


def contact_sheet(images: Sequence[np.ndarray], masks: Sequence[np.ndarray]) -> np.ndarray:
    """Thumbnails of RGB images [H, W, 3] with their masks [H, W], uint8, as one image uint8 [h, w, 3]."""
    chosen = evenly_spaced(len(images), MOST)
    tiles = [_tile(images[index], masks[index]) for index in chosen]
    columns = int(np.ceil(np.sqrt(len(tiles))))
    rows = -(-len(tiles) // columns)
    sheet = np.zeros((rows * THUMBNAIL, columns * THUMBNAIL, 3), np.uint8)
    for number, tile in enumerate(tiles):
        y, x = THUMBNAIL * (number // columns), THUMBNAIL * (number % columns)
        sheet[y : y + tile.shape[0], x : x + tile.shape[1]] = tile
    return sheet


def _tile(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    ratio = THUMBNAIL / max(image.shape[:2])
    size = (max(1, round(image.shape[1] * ratio)), max(1, round(image.shape[0] * ratio)))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    inside = cv2.resize(mask, size, interpolation=cv2.INTER_AREA) > 127
    tile = np.where(inside[..., None], small, (small * DIM).astype(np.uint8))
    outlines, _ = cv2.findContours(inside.astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(np.ascontiguousarray(tile), outlines, -1, OUTLINE, 1)
