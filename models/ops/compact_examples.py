"""Examples of the operations on packed samples."""

from __future__ import annotations

import numpy as np

from models.machine.backend import jt
from models.ops.compact import compact, fill, merged_order
from models.ops.example import Example, Maker
from models.ops.march import PackedSamples

RAYS = 20
SAMPLES = 150  # more than two blocks of a kernel, the last one incomplete


def packed_offsets(rng: np.random.Generator) -> np.ndarray:
    """Offsets int32 [RAYS + 1] of rays, some of which have no samples, with unused rows at the end of SAMPLES."""
    counts = rng.integers(0, 2 * SAMPLES // RAYS - 4, RAYS)
    return np.concatenate([[0], np.minimum(np.cumsum(counts), SAMPLES - 3)]).astype(np.int32)


def _samples(rng: np.random.Generator) -> PackedSamples:
    offsets = packed_offsets(rng)
    used = np.arange(SAMPLES) < offsets[-1]
    rays = np.where(used, np.searchsorted(offsets, np.arange(SAMPLES), side="right") - 1, 0)
    depths = np.where(used, np.sort(rng.uniform(0.1, 1.4, SAMPLES)), 0.0)[:, None]
    points, directions = (rng.normal(size=(SAMPLES, 3)) * used[:, None] for _ in range(2))
    whole = (jt.array(values.astype(np.int32)) for values in (offsets, np.array([RAYS]), rays))
    return PackedSamples(*whole, *(jt.array(values.astype(np.float32)) for values in (depths, points, directions)))


def _compact(rng: np.random.Generator) -> Example:
    return Example(compact, (_samples(rng), jt.array(rng.random(SAMPLES) < 0.6), SAMPLES // 3))


def _fill(rng: np.random.Generator) -> Example:
    others = jt.array(rng.normal(size=(5, 3)).astype(np.float32))
    return Example(fill, (_samples(rng), others, SAMPLES + 10))


def _merged_order(rng: np.random.Generator) -> Example:
    return Example(merged_order, (_samples(rng), _samples(rng)))


COMPACT_MAKERS: dict[str, Maker] = {"compact": _compact, "fill": _fill, "merged_order": _merged_order}
