"""A batch of packed samples: rays of random pixels of all images, with their samples in occupied cells."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from data.rays import PixelBatch
from models.machine.backend import jt
from models.ops.march import PackedSamples
from models.structs import Array, Var


@dataclass(frozen=True)
class PackedBatch(PixelBatch):
    """R rays with their pixels and samples. Values of rays are arrays, or Vars if they were drawn on the device."""

    # The S samples of the region. Those of no ray are SfM points, then random points of the hull.
    near: PackedSamples
    far: PackedSamples | None  # those of the background, if there is one
    step: float  # length of each interval
    anchors: int | None = None  # number of SfM points; None if they are not used
    every: int | None = None  # patches are compared for one ray in so many; None: no patches

    def part(self, start: int, stop: int) -> PackedBatch:
        """The rays start to stop - 1 with their samples; the last ray also gets the samples of no ray."""
        stop = min(stop, len(self))
        is_last = stop == len(self)
        near, far = _part(self.near, start, stop, is_last), self.far and _part(self.far, start, stop, is_last)
        anchors = self.anchors if self.anchors is None or is_last else 0
        return replace(self, **vars(super().part(start, stop)), near=near, far=far, anchors=anchors)

    def of_rays(self, is_such: Array) -> Var:
        """Whether each sample is on one of the given rays, bool [R]: float32 [S, 1]."""
        flags = jt.array(is_such).float32()[self.near.rays].unsqueeze(1)
        return flags * (jt.index(flags.shape, dim=0) < self.near.offsets[-1:].unsqueeze(1)).float32()

    def is_anchor(self) -> Var:
        """Whether each sample is an SfM point, float32 [S, 1]."""
        behind = jt.index(self.near.depths.shape, dim=0) - self.near.offsets[-1:].unsqueeze(1)
        return ((behind >= 0) & (behind < (self.anchors or 0))).float32()

    def words(self) -> dict[str, np.ndarray]:
        """The arrays by descriptive names, for messages."""
        named = {
            "the rays (the cameras)": np.hstack([np.asarray(value) for value in vars(self.rays).values()]),
            "the colours of the photographs": np.asarray(self.rgb),
        }
        return named if self.mask is None else named | {"the masks": np.asarray(self.mask)}


def _part(one: PackedSamples, start: int, stop: int, is_last: bool) -> PackedSamples:
    """The samples of the rays start to stop - 1, the last ray with those of no ray; waits for the device."""
    values = {name: value.numpy() for name, value in vars(one).items()}
    offsets = values.pop("offsets")
    rows = slice(offsets[start], None if is_last else offsets[stop])
    cut = {name: value[rows] for name, value in values.items() if name != "kept"}
    cut |= {"offsets": offsets[start : stop + 1] - offsets[start], "rays": np.maximum(cut["rays"] - start, 0)}
    return PackedSamples(kept=one.kept, **{name: jt.array(value).stop_grad() for name, value in cut.items()})
