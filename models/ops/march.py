"""Samples along rays, only where something may be: a walk through a grid of occupied cells over the cube [-1, 1]^3.

A ray offers the depths near + (k + jitter) step below far, k = 0, 1, 2, ..., until one lies in a solid cell; those in
occupied cells are its samples, each the middle of a section as long as the step, in that order and packed as `packed`
says. Nothing here is differentiated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.kernel import Kernel
from models.ops.source import Source
from models.structs import Var

EMPTY, OCCUPIED, SOLID = 0, 1, 2  # cells: nothing, maybe something, the inside of something: there rays end
MOST_STEPS = 1 << 16  # of a ray: whatever its far end, a walk comes to one


@dataclass(frozen=True)
class March:
    """The layout."""

    cells: int  # along an edge of the cube
    samples: int  # S, at most so many are taken
    step: float  # between depths, working-frame units
    most_steps: int = MOST_STEPS


@dataclass(frozen=True)
class PackedSamples:
    """What the rays pass through, S samples. Those from offsets[R] on are nobody's: all zeros."""

    offsets: Var  # int32 [R + 1]: the samples of ray r are offsets[r] to offsets[r + 1]
    kept: Var  # int32 [1]: so many rays, from the first, got all their samples; the others have none
    rays: Var  # int32 [S]: whose a sample is
    depths: Var  # [S, 1]
    points: Var  # [S, 3]
    directions: Var  # [S, 3], unit

    def first(self, count: int) -> PackedSamples:
        """Only the first samples."""
        samples = (value[:count] for value in (self.rays, self.depths, self.points, self.directions))
        return PackedSamples(self.offsets, self.kept, *samples)


SOURCE = Source("march.h", (March,), (("SOLID", SOLID),))


def _reference(
    origins: Var, directions: Var, near: Var, far: Var, jitter: Var, occupied: Var, step: float, samples: int
) -> PackedSamples:
    """Every depth of every ray looked up.

    Args:
        origins, directions: [R, 3].
        near, far, jitter: [R, 1]; jitter in [0, 1).
        occupied: uint8 [N, N, N] by x, y, z: EMPTY, OCCUPIED or SOLID. Beyond the cube nothing is.
        step: working-frame units.
        samples: S. A ray whose samples would end beyond it gets none, nor does any ray after it.
    """
    start, end, offset = (value.numpy().astype(np.float32) for value in (near, far, jitter))
    o, d = origins.numpy().astype(np.float32), directions.numpy().astype(np.float32)
    cells, stride = occupied.shape[0], np.float32(step)
    steps = min(MOST_STEPS, max(1, int(np.ceil(((end - start) / stride).max())) + 1))
    depths = start + (np.arange(steps, dtype=np.float32)[None] + offset) * stride
    points = o[:, None] + d[:, None] * depths[..., None]
    place = np.floor((points + np.float32(1)) * np.float32(0.5 * cells))
    inside = ((place >= 0) & (place < cells)).all(axis=2) & (depths < end)
    x, y, z = np.where(inside[..., None], place, 0).astype(np.int64).transpose(2, 0, 1)
    cell = np.where(inside, occupied.numpy()[x, y, z], EMPTY)
    is_taken = (cell == OCCUPIED) & ~np.logical_or.accumulate(cell == SOLID, axis=1)
    ends = np.cumsum(is_taken.sum(axis=1))
    kept = int((ends <= samples).sum())
    rays, steps_taken = np.nonzero(is_taken[:kept])
    offsets = np.concatenate([[0], ends[:kept], np.full(len(ends) - kept, len(rays))])

    def spread(values: np.ndarray) -> Var:
        padding = np.zeros((samples - len(rays), *values.shape[1:]), values.dtype)
        return jt.array(np.concatenate([values, padding])).stop_grad()

    return PackedSamples(
        offsets=jt.array(offsets.astype(np.int32)).stop_grad(),
        kept=jt.array(np.array([kept], np.int32)).stop_grad(),
        rays=spread(rays.astype(np.int32)),
        depths=spread(depths[rays, steps_taken, None]),
        points=spread(points[rays, steps_taken]),
        directions=spread(d[rays]),
    )


def _native(
    origins: Var, directions: Var, near: Var, far: Var, jitter: Var, occupied: Var, step: float, samples: int
) -> PackedSamples:
    """One operation: a walk from cell to cell, over empty blocks of cells at once."""
    rays = origins.shape[0]
    outputs = [((rays + 1,), "int32"), ((1,), "int32"), ((samples,), "int32")]
    outputs += [((samples, width), "float32") for width in (1, 3, 3)]
    layout = March(occupied.shape[0], samples, step)
    found = SOURCE.call("march", layout, outputs, [origins, directions, near, far, jitter, occupied])
    return PackedSamples(*(value.stop_grad() for value in found))


march = Kernel(_reference, cpu=_native, cuda=_native)
