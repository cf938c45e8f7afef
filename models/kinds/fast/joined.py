"""Samples of the region and of what lies beyond it, as one row along each ray.

Both are packed ray by ray, S of the region and F beyond it, those of ray r of R from offsets[r] to offsets[r + 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.rendering.occupancy import Walk
from models.structs import Var


@dataclass(frozen=True)
class Aligned:
    """Two walks along the same rays, cut to the rays that both have walked; R of these have samples."""

    rows: np.ndarray  # [R], which rays, ascending
    near: np.ndarray  # int32 [R + 1], offsets of the samples in the region
    far: np.ndarray  # int32 [R + 1], and beyond it
    walked: int


def align(near: Walk, far: Walk) -> Aligned:
    """The rays that have samples in either walk."""
    walked = min(near.walked, far.walked)
    counts = np.zeros((2, walked), np.int32)
    for count, walk in zip(counts, (near, far), strict=True):
        is_in = walk.rows < walked
        count[walk.rows[is_in]] = np.diff(walk.offsets)[is_in]
    rows = np.flatnonzero(counts.sum(axis=0))
    ends = [np.concatenate([[0], np.cumsum(count[rows])]).astype(np.int32) for count in counts]
    return Aligned(rows, *ends, walked)


@dataclass(frozen=True)
class Order:
    """Where the samples, first all S, then all F, come in the one row, and which are where in it; int32 [S + F]."""

    place: Var
    sample: Var

    def along_rays(self, near: Var, far: Var) -> Var:
        """Values of the samples [S, C] and [F, C], in the order of the row [S + F, C]."""
        return _Permuted(self)(jt.concat([near, far], dim=0))

    def of_near(self, values: Var, count: int) -> Var:
        """Of values in the order of the row those of the S = `count` samples of the region."""
        return values[self.place[:count]]


def order(near_offsets: np.ndarray, near_depths: np.ndarray, far_offsets: np.ndarray, far_depths: np.ndarray) -> Order:
    """The order by ray and depth (depths [S, 1] and [F, 1]); samples of no ray come last."""
    used = int(near_offsets[-1]), int(far_offsets[-1])
    longest = 1.0 + max(float(np.abs(depths).max(initial=0.0)) for depths in (near_depths, far_depths))
    keys = [
        np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * (2 * longest) + depths[: offsets[-1], 0]
        for offsets, depths in ((near_offsets, near_depths), (far_offsets, far_depths))
    ]
    count = len(near_depths) + len(far_depths)
    rest = np.arange(count)
    place = np.concatenate(
        [
            rest[: used[0]] + np.searchsorted(keys[1], keys[0], side="left"),
            rest[used[0] : len(near_depths)] + used[1],
            rest[: used[1]] + np.searchsorted(keys[0], keys[1], side="right"),
            rest[used[1] : len(far_depths)] + len(near_depths),
        ]
    )
    sample = np.empty(count, np.int32)
    sample[place] = rest
    return Order(jt.array(place.astype(np.int32)).stop_grad(), jt.array(sample).stop_grad())


class _Permuted(jt.Function):
    """Rows in another order; the cotangent goes back by the inverse."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self.order = order

    def execute(self, values: Var) -> Var:
        """[N, C] -> [N, C]."""
        return values[self.order.sample]

    def grad(self, d_values: Var) -> Var:
        """Likewise."""
        return d_values[self.order.place]
