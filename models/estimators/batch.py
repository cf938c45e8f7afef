"""A batch of packed samples: rays of random pixels of all images, whose samples are computed within the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from data.rays import Rays
from models.machine.backend import jt
from models.ops.later import Later
from models.ops.march import PackedSamples
from models.structs import MASK_THRESHOLD, Array, Var

# Numbers of a batch, over the rays that fit the budget: rays, rays with samples, samples of the region, those before
# hidden ones were removed, and the same two of the background, if there is one.
COUNTED = ("rays", "hits", "near", "walked", "far", "asked")


def counts_of(counted: Later) -> dict[str, int]:
    """The numbers of COUNTED, once they are on the host."""
    return dict.fromkeys(COUNTED, 0) | dict(zip(COUNTED, counted.read().tolist(), strict=False))


# The samples of a batch on the device: those of the region, including points that belong to no ray, those of the
# background, and the numbers of COUNTED on their way to the host; None for a part of a batch.
Placed = tuple[PackedSamples, PackedSamples | None, Later | None]


def started(near: PackedSamples, far: PackedSamples | None, walked: Var, asked: Var | None) -> Placed:
    """The samples of R rays, with their computation started, and the copy of their counts to the host.

    walked, asked: int32 [R + 1], offsets of both kinds of samples before hidden ones were removed.
    """
    counted, offsets = [near.offsets, walked], near.offsets
    if far is not None:
        counted += [far.offsets, asked]
        offsets = offsets + far.offsets
    found = [value for one in (near, far) if one is not None for value in vars(one).values()]
    jt.sync([*found, walked, *(() if asked is None else (asked,))])
    hits = (offsets[1:] > offsets[:-1]).int32().sum()
    return near, far, Later(jt.concat([near.kept, hits, *(ends[near.kept] for ends in counted)]).stop_grad())


def _part(one: PackedSamples, start: int, stop: int, is_last: bool) -> PackedSamples:
    """The samples of the rays start to stop - 1, the last ray with the points of no ray; waits for the device."""
    values = {name: value.numpy() for name, value in vars(one).items()}
    offsets = values.pop("offsets")
    rows = slice(offsets[start], None if is_last else offsets[stop])
    cut = {name: value[rows] for name, value in values.items() if name != "kept"}
    cut |= {"offsets": offsets[start : stop + 1] - offsets[start], "rays": np.maximum(cut["rays"] - start, 0)}
    return PackedSamples(kept=one.kept, **{name: jt.array(value).stop_grad() for name, value in cut.items()})


@dataclass(frozen=True)
class PackedBatch:
    """R rays with their target colours, and points that belong to no ray; S samples in total.

    The values of rays are arrays, or Vars if they were drawn on the device.
    """

    origins: Array  # [R, 3]
    directions: Array  # [R, 3], unit
    near: Array  # [R, 1]
    far: Array  # [R, 1]
    jitter: Array  # [R, 1] in [0, 1)
    rgb: Array  # [R, 3] in [0, 1]
    view: Array  # [R] int32, index of the image
    others: np.ndarray  # [P, 3]: SfM points, then random points of the hull; they fill the samples not used by rays
    step: np.ndarray  # [1], the length of each interval
    # int32 [5]: S; maximum numbers of samples before and after removal of hidden ones; both for the background.
    sizes: np.ndarray
    place: Callable[[PackedBatch], Placed]  # function of the estimator that computes the samples
    mask: Array | None = None  # [R, 1] in [0, 1], None for a scene without masks
    anchors: np.ndarray | None = None  # int32 [1]: number of SfM points; None if there are none
    every: np.ndarray | None = None  # int32 [1], n: patches are compared for every n-th ray; None: no patches

    def __len__(self) -> int:
        """The number of rays R."""
        return len(self.rgb)

    @property
    def rays(self) -> Rays:
        """The rays with their near and far depths."""
        return Rays(self.origins, self.directions, self.near, self.far)

    @cached_property
    def placed(self) -> Placed:
        """The samples, computed at first use."""
        return self.place(self)

    def part(self, start: int, stop: int) -> PackedBatch:
        """The rays start to stop - 1 with their samples; the last ray also gets the points of no ray."""
        stop = min(stop, len(self))
        is_last = stop == len(self)
        near, far, _ = self.placed
        placed = _part(near, start, stop, is_last), None if far is None else _part(far, start, stop, is_last), None
        names = ("origins", "directions", "near", "far", "jitter", "rgb", "view", "mask")
        cut = {name: value[start:stop] for name, value in self.arrays().items() if name in names}
        anchors = self.anchors if self.anchors is None or is_last else np.zeros_like(self.anchors)
        return replace(self, **cut, anchors=anchors, place=lambda _: placed)

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name; reads those on the device."""
        values = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray | jt.Var)}
        return {name: value.numpy() if isinstance(value, jt.Var) else value for name, value in values.items()}

    def is_free_ray(self) -> Array | None:
        """Whether each ray passes beside the object according to its mask, bool [R]; None without masks."""
        return None if self.mask is None else self.mask[:, 0] <= MASK_THRESHOLD

    def of_rays(self, is_such: Array) -> Var:
        """Whether each sample is on one of the given rays, bool [R]: float32 [S, 1]."""
        near = self.placed[0]
        flags = jt.array(is_such).float32()[near.rays].unsqueeze(1)
        return flags * (jt.index(flags.shape, dim=0) < near.offsets[-1:].unsqueeze(1)).float32()

    def is_anchor(self) -> Var:
        """Whether each sample is an SfM point, float32 [S, 1]."""
        near = self.placed[0]
        behind = jt.index(near.depths.shape, dim=0) - near.offsets[-1:].unsqueeze(1)
        count = 0 if self.anchors is None else int(self.anchors[0])
        return ((behind >= 0) & (behind < count)).float32()

    def words(self) -> dict[str, np.ndarray]:
        """The arrays by descriptive names, for messages."""
        arrays, cameras = self.arrays(), ("origins", "directions", "near", "far", "jitter")
        named = {
            "the rays (the cameras)": np.hstack([arrays[name] for name in cameras]),
            "the points beside the rays": self.others,
            "the colours of the photographs": arrays["rgb"],
        }
        return named if self.mask is None else named | {"the masks": arrays["mask"]}
