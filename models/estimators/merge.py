"""Packed samples of the region and of the background, merged along each ray.

S samples of the region and F of the background, those of ray r of R from offsets[r] to offsets[r + 1] of either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.estimators.occupancy import Traversal
from models.machine.backend import jt
from models.structs import RayLayout, RaySamples, Var


@dataclass(frozen=True)
class Aligned:
    """Two traversals of the same rays, cut to the rays that both hold; R of these have samples."""

    rows: np.ndarray  # [R], which rays, ascending
    near: np.ndarray  # int32 [R + 1], offsets of the samples of the region
    far: np.ndarray  # int32 [R + 1], of the background
    traversed: int


def align(near: Traversal, far: Traversal) -> Aligned:
    """The rays that have samples in either traversal."""
    traversed = min(near.traversed, far.traversed)
    counts = np.zeros((2, traversed), np.int32)
    for count, traversal in zip(counts, (near, far), strict=True):
        is_in = traversal.rows < traversed
        count[traversal.rows[is_in]] = np.diff(traversal.offsets)[is_in]
    rows = np.flatnonzero(counts.sum(axis=0))
    ends = [np.concatenate([[0], np.cumsum(count[rows])]).astype(np.int32) for count in counts]
    return Aligned(rows, *ends, traversed)


@dataclass(frozen=True)
class Order:
    """The permutation from the samples, first all S, then all F, to their merged order, and its inverse."""

    place: Var  # int32 [S + F], of each sample its place in the merged order
    sample: Var  # int32 [S + F], of each place its sample

    def merged(self, near: Var, far: Var) -> Var:
        """Values of the samples [S, C] and [F, C] in merged order [S + F, C]."""
        return _Permuted(self)(jt.concat([near, far], dim=0))


@dataclass(frozen=True)
class MergedBackground:
    """F samples of the background and where they lie among those of the region; see `BackgroundSamples`."""

    alpha: Var  # [F, 1]
    rgb: Var  # [F, 3]
    order: Order
    rays: RayLayout  # of all S + F samples
    region: int  # S

    def joined(self, alpha: Var, rgb: Var, samples: RaySamples) -> tuple[Var, Var, RayLayout]:
        """Opacity and colour of all samples in merged order."""
        del samples
        return self.order.merged(alpha, self.alpha), self.order.merged(rgb, self.rgb), self.rays

    def of_region(self, weights: Var) -> Var:
        """Weights [S + F, 1] -> [S, 1]."""
        return weights[self.order.place[: self.region]]


def order(near_offsets: np.ndarray, near_depths: np.ndarray, far_offsets: np.ndarray, far_depths: np.ndarray) -> Order:
    """The order by ray and distance (depths [S, 1] and [F, 1]); samples of no ray come last."""
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
    """Rows in another order; the cotangent is permuted by the inverse."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self.order = order

    def execute(self, values: Var) -> Var:
        return values[self.order.sample]

    def grad(self, d_values: Var) -> Var:
        return d_values[self.order.place]
