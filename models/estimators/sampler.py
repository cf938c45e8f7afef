"""Batches of packed samples: rays of random pixels of all images, as many as fit the budget, and their samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from data.cameras import SPAN_LENGTH
from data.errors import UserError
from data.rays import PixelBatch, Rays
from data.scenes.sampler import HostPixels, damage_named, require_views, restore_generator, windows_of
from data.scenes.scene import Scene
from models.estimators.conf import POINTS_SHARE
from models.estimators.drawn_pixels import pixels_of
from models.estimators.packed import Region
from models.machine.backend import device_info, jt
from models.ops.later import Later
from models.ops.march import PackedSamples, fill
from models.structs import MASK_THRESHOLD, Array, Var

PROBES = 2048  # random pixels; the rays of those inside the masks test whether pruning removes the object
OPEN_PROBES = 512  # the same with a background: rays of all pixels; their opacity takes a sixth of a step
MOST_EMPTY = 64  # consecutive batches without samples
SPARE_SAMPLES = 1.2  # factor on the expected number of samples
TRAVERSED_TO_VISIBLE = 6  # maximum ratio of traversed samples to the budget of visible ones
ROUNDED_TO = 512  # numbers of rows, so that few sizes of arrays occur: memory is reused by size
FIRST_PER_RAY = 16.0  # assumed samples per pixel of the first batch
# Batches whose samples a GPU may not have counted when the next one is drawn. Waiting for them would leave it idle.
UNCOUNTED = {"cpu": 0, "cuda": 1}
SPARE_POINTS = 1 / 16  # fraction of the samples: additional points, used if rays have few samples
# Numbers of a batch, over the rays that fit the budget: rays, rays with samples, samples of the region, those before
# hidden ones were removed, and the same two of the background, if there is one.
COUNTED = ("rays", "hits", "near", "walked", "far", "asked")
# Mean numbers per ray of a batch, from which a later one is sized.
FIRST = {"near": FIRST_PER_RAY, "walked": FIRST_PER_RAY, "far": FIRST_PER_RAY, "asked": FIRST_PER_RAY, "hits": 1.0}


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


class Sizes(NamedTuple):
    """Numbers of rows: of the region, with points of no ray; before and after removal of hidden samples, both kinds."""

    samples: int
    walked: int
    near: int
    asked: int = 0
    far: int = 0


# Of the samples found along rays: the visible ones, those of the background, and its offsets before hidden ones were
# removed. The rays come with their jitter and the length of an interval.
Seen = tuple[PackedSamples, PackedSamples | None, Var | None]
Visible = Callable[[PackedSamples, Rays, Array, float, Sizes], Seen]


def per_ray(counts: Mapping[str, int], last: Mapping[str, float]) -> dict[str, float]:
    """The means of a batch; the last ones doubled, but for the hits, if not even one ray fitted."""
    if counts["rays"]:
        return {name: counts[name] / counts["rays"] for name in FIRST}
    return {name: value if name == "hits" else 2.0 * max(value, 1.0) for name, value in last.items()}


class PackedSampler:
    """An endless sequence of batches, each with as many rays as fit the sample budget."""

    def __init__(
        self, scene: Scene, region: Region, rays: int, generator: np.random.Generator, visible: Visible | None = None
    ) -> None:
        """`rays`: their maximum number; `visible`: None if no samples are hidden."""
        self._scene, self._region, self._visible = scene, region, visible
        self._most_rays, self._samples, self._generator = rays, region.conf.samples, generator
        self._per_ray = dict(FIRST)
        self._empty = 0  # consecutive batches without samples
        self._counted: list[Later | dict[str, int]] = []  # of the last batches, not considered yet
        self._uncounted = UNCOUNTED[device_info().name]
        self._windows = windows_of(scene, None if region.beyond else region.grid.centres(), region.grid.side)
        self._pixels = pixels_of(scene, self._windows)
        region.probes = self._probe_rays()  # the same in every run
        region.schedule(0)

    def next(self) -> PackedBatch:
        """The next batch; raises UserError if the last MOST_EMPTY batches had no samples, so no image sees the hull."""
        self._follow()
        region = self._region
        share = region.random_share if region.points is None else max(region.random_share, POINTS_SHARE)
        free = int(share * self._samples)
        drawn, sizes = self._sizes(free)
        every = None
        if region.most_compared is not None:
            every = max(1, math.ceil(drawn * self._per_ray["hits"] / region.most_compared))
        pixels, jitter = self._pixels.draw(self._generator, drawn)
        others, anchors = self._others(free)
        step = float(np.float32(region.step_size))
        near, far = self._placed(pixels.rays, jitter, step, others, sizes)
        mask = pixels.mask if region.plan.uses_masks else None
        return PackedBatch(pixels.rays, pixels.rgb, mask, pixels.view, near, far, step, anchors, every)

    def _placed(
        self, rays: Rays, jitter: Array, step: float, others: np.ndarray, sizes: Sizes
    ) -> tuple[PackedSamples, PackedSamples | None]:
        """The samples of the first rays that fit the budget, with their computation started."""
        with jt.no_grad():
            found = near = self._region.grid.march(rays, jitter, step, sizes.walked)
            far = asked = None
            if self._visible is not None:
                near, far, asked = self._visible(found, rays, jitter, step, sizes)
            near = fill(near, jt.array(others), sizes.samples)
        both = [near] if far is None else [near, far]
        ends = [near.offsets, found.offsets] if far is None else [near.offsets, found.offsets, far.offsets, asked]
        jt.sync([*(value for one in both for value in vars(one).values()), *ends])
        offsets = sum(one.offsets for one in both)
        if not self._uncounted:
            kept, offsets = int(near.kept.item()), offsets.numpy()
            values = kept, int((offsets[1:] > offsets[:-1]).sum()), *(int(one.numpy()[kept]) for one in ends)
            self._counted.append(dict(zip(COUNTED, values, strict=False)))
            return near, far
        hits = (offsets[1:] > offsets[:-1]).int32().sum()
        self._counted.append(Later(jt.concat([near.kept, hits, *(one[near.kept] for one in ends)]).stop_grad()))
        return near, far

    def _sizes(self, free: int) -> tuple[int, Sizes]:
        """The number of rays of the next batch, and its sizes, both estimated from an earlier batch.

        `free` is the number of samples that belong to no ray. On the CPU an unused row takes as much time as a sample;
        so a batch whose rays are limited by the background has fewer samples of the region.
        """
        beyond, each, most = self._region.beyond, self._per_ray, self._samples - free
        rays = most / max(each["near"], 1 / most)
        if beyond:
            rays = min(rays, beyond / max(each["far"], 1 / beyond))
        rays = int(np.clip(rays, 1, self._most_rays))
        if self._visible is None:
            return rays, Sizes(self._samples, most, most)
        longest = min(most, math.ceil(SPAN_LENGTH / self._region.step_size) + 1)  # samples of a single ray
        walked = min(max(longest, _rows(rays * each["walked"])), TRAVERSED_TO_VISIBLE * most)
        if not beyond:
            return rays, Sizes(self._samples, walked, most)
        near = min(most, max(longest, _rows(rays * each["near"])))
        far = min(beyond, _rows(rays * each["far"]))
        return rays, Sizes(near + free, walked, near, _rows(rays * each["asked"]), far)

    def _follow(self) -> None:
        """Update the estimates for the next batch from the sample counts of earlier ones."""
        while len(self._counted) > self._uncounted:
            counts = counts_of(self._counted.pop(0))
            self._empty = 0 if counts["hits"] else self._empty + 1
            if counts["rays"] and not counts["hits"]:
                self._region.grid.open()
            if self._empty == MOST_EMPTY:
                raise UserError(
                    f"{self._scene.name}: no photograph sees the region where the object may be; check the cameras, "
                    "the masks and the region of interest"
                )
            self._per_ray = per_ray(counts, self._per_ray)

    def _others(self, free: int) -> tuple[np.ndarray, int | None]:
        """Points [P, 3] that belong to no ray, SfM points first, and the number of SfM points.

        `free` is the minimum number of samples that are available for them; if more are available, points are repeated.
        """
        grid, points = self._region.grid, self._region.points
        count = free + int(SPARE_POINTS * self._samples)
        if points is None:
            return grid.random_points(count, self._generator), None
        some = self._generator.integers(len(points), size=min(free, int(POINTS_SHARE * self._samples)))
        others = grid.random_points(count - len(some), self._generator)
        return np.concatenate([points[some], others]), len(some)

    def _probe_rays(self) -> Rays:
        """Rays of mask pixels that cross the hull; with a background, rays of all pixels."""
        is_open = self._region.beyond > 0
        count = OPEN_PROBES if is_open else PROBES
        pixels = HostPixels(self._scene, self._windows).pixels(np.random.default_rng(0), count, self._scene.n_views)
        if is_open or pixels.mask is None:
            return pixels.rays
        rays = pixels.rays.at(pixels.mask[:, 0] > MASK_THRESHOLD)
        return rays.at(self._region.grid.crosses(rays))

    def state(self) -> dict[str, Any]:
        """The state that determines the next batches besides that of the estimator, as JSON values."""
        self._follow()
        counted = [counts_of(one) for one in self._counted]
        self._counted = [*counted]
        state: dict[str, Any] = {"per_ray": self._per_ray, "views": self._scene.n_views}
        return state | ({"counted": counted} if counted else {}) | {"generator": self._generator.bit_generator.state}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`; raises UserError, with nothing changed, if it does not fit."""
        with damage_named():
            means = {name: float(state["per_ray"][name]) for name in FIRST}
            views, generator = int(state["views"]), dict(state["generator"])
            if not all(0.0 <= value < np.inf for value in means.values()):
                raise ValueError(f"per_ray = {means}")
            counted = [{name: int(one[name]) for name in COUNTED} for one in state.get("counted", ())]
            if any(not 0 <= count < 2**31 for counts in counted for count in counts.values()):  # they are int32
                raise ValueError(f"counted = {counted}")
        require_views(views, self._scene)
        restore_generator(self._generator, generator)
        self._per_ray, self._counted = means, [*counted]


def counts_of(counted: Later | dict[str, int]) -> dict[str, int]:
    """The numbers of COUNTED, once they are on the host."""
    found = counted if isinstance(counted, dict) else dict(zip(COUNTED, counted.read().tolist(), strict=False))
    return dict.fromkeys(COUNTED, 0) | found


def _rows(expected: float) -> int:
    """The number of rows for an expected number of samples."""
    return max(1, math.ceil(SPARE_SAMPLES * expected / ROUNDED_TO)) * ROUNDED_TO


def _part(one: PackedSamples, start: int, stop: int, is_last: bool) -> PackedSamples:
    """The samples of the rays start to stop - 1, the last ray with those of no ray; waits for the device."""
    values = {name: value.numpy() for name, value in vars(one).items()}
    offsets = values.pop("offsets")
    rows = slice(offsets[start], None if is_last else offsets[stop])
    cut = {name: value[rows] for name, value in values.items() if name != "kept"}
    cut |= {"offsets": offsets[start : stop + 1] - offsets[start], "rays": np.maximum(cut["rays"] - start, 0)}
    return PackedSamples(kept=one.kept, **{name: jt.array(value).stop_grad() for name, value in cut.items()})
