"""Examples of the operations that make a batch on a GPU."""

from __future__ import annotations

import numpy as np

from data.rays import Rays
from models.machine.backend import jt
from models.ops.draw import Draw, Photographs, draw_pixels
from models.ops.example import Example, Maker
from models.ops.outside import BEFORE, Outside, outside_samples

RAYS = 20


def _draw(rng: np.random.Generator) -> Example:
    """Two photographs of 8x6 and 5x7 pixels, the second one with a window."""
    windows = np.array([[0, 8, 0, 0, 8, 6], [48, 5, 1, 2, 3, 4]], np.int32)
    pixels = 48 + 35
    photographs = Photographs(
        jt.array(windows),
        jt.array(np.array([0.8, 1.0]), dtype="float64"),
        jt.array(rng.normal(size=(2, 12)), dtype="float64"),
        jt.array(rng.integers(0, 256, (pixels, 3)).astype(np.uint8)),
        jt.array(rng.integers(0, 256, pixels).astype(np.uint8)),
    )
    return Example(draw_pixels, (photographs, Draw(RAYS, 3, 5, np.float64(0.3), 1)))


def _outside(rng: np.random.Generator) -> Example:
    """Rays around the sphere with more samples than fit, all cells occupied."""
    origins, directions = rng.normal(size=(2, RAYS, 3))
    origins *= 3.0 / np.linalg.norm(origins, axis=1, keepdims=True)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    ends = np.zeros((2, RAYS, 1))
    rays = Rays(*(jt.array(values.astype(np.float32)) for values in (origins, directions, *ends)))
    jitter, transmits = jt.array(rng.random((RAYS, 1), dtype=np.float32)), jt.array(np.ones(RAYS, bool))
    states = jt.array(np.full((8, 8, 8), BEFORE, np.uint8))
    return Example(outside_samples, (rays, jitter, transmits, states, Outside(8, 64, np.float64(0.2), np.float64(0.1))))


DRAWN_MAKERS: dict[str, Maker] = {"draw_pixels": _draw, "outside_samples": _outside}
