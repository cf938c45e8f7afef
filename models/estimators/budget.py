"""The sample budget of a step: how many rays are drawn, from the numbers of samples of earlier batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from data.cameras import SPAN_LENGTH
from models.machine.backend import device_info
from models.ops.later import Later

MOST_EMPTY = 64  # consecutive batches without samples
SPARE_SAMPLES = 1.2  # factor on the expected number of samples
TRAVERSED_TO_VISIBLE = 6  # maximum ratio of traversed samples to the budget of visible ones
ROUNDED_TO = 512  # numbers of rows, so that few sizes of arrays occur: memory is reused by size
FIRST_PER_RAY = 16.0  # assumed samples per pixel of the first batch
# Batches whose samples a GPU may not have counted when the next one is drawn. Waiting for them would leave it idle.
UNCOUNTED = {"cpu": 0, "cuda": 1}
# Numbers of a batch, over the rays that fit the budget: rays, rays with samples, visible and all traversed samples of
# the region, and the same two of the background, if there is one. The names are those in checkpoints.
COUNTED = RAYS, HITS, VISIBLE, TRAVERSED, BACKGROUND_VISIBLE, BACKGROUND_TRAVERSED = (
    "rays",
    "hits",
    "near",
    "walked",
    "far",
    "asked",
)
# Mean numbers per ray of a batch, from which a later one is sized.
FIRST = dict.fromkeys((VISIBLE, TRAVERSED, BACKGROUND_VISIBLE, BACKGROUND_TRAVERSED), FIRST_PER_RAY) | {HITS: 1.0}


class Sizes(NamedTuple):
    """Numbers of rows: of the region, with points of no ray; traversed and visible samples of both kinds."""

    samples: int
    traversed: int
    visible: int
    background_traversed: int = 0
    background_visible: int = 0

    @property
    def free(self) -> int:
        """The number of samples of the region that belong to no ray."""
        return self.samples - self.visible


class SampleBudget:
    """Sizes the next batch by the sample counts of the last ones."""

    def __init__(self, samples: int, background_samples: int, has_hidden: bool, when_blind: Callable[[], None]) -> None:
        """Maximum numbers of samples of a batch, of region and background; `has_hidden`: hidden ones are removed;
        `when_blind` is called when none of the rays of a batch has samples.
        """
        self.samples, self.background_samples, self.has_hidden, self._when_blind = (
            samples,
            background_samples,
            has_hidden,
            when_blind,
        )
        self.per_ray = dict(FIRST)
        self.empty_batches = 0  # consecutive ones without samples
        self.counts: list[Later | dict[str, int]] = []  # of the last batches, not considered yet
        self.uncounted = UNCOUNTED[device_info().name]

    def next_sizes(self, most_rays: int, free: int, step_size: float) -> tuple[int, Sizes]:
        """The number of rays of the next batch, and its sizes, both estimated from an earlier batch.

        `free` is the number of samples that belong to no ray. On the CPU an unused row takes as much time as a sample;
        so a batch whose rays are limited by the background has fewer samples of the region.
        """
        behind, each, most = self.background_samples, self.per_ray, self.samples - free
        rays = most / max(each[VISIBLE], 1 / most)
        if behind:
            rays = min(rays, behind / max(each[BACKGROUND_VISIBLE], 1 / behind))
        rays = int(np.clip(rays, 1, most_rays))
        if not self.has_hidden:
            return rays, Sizes(self.samples, most, most)
        longest = min(most, math.ceil(SPAN_LENGTH / step_size) + 1)  # samples of a single ray
        traversed = min(max(longest, _rows(rays * each[TRAVERSED])), TRAVERSED_TO_VISIBLE * most)
        if not behind:
            return rays, Sizes(self.samples, traversed, most)
        visible = min(most, max(longest, _rows(rays * each[VISIBLE])))
        visible_behind = min(behind, _rows(rays * each[BACKGROUND_VISIBLE]))
        return rays, Sizes(visible + free, traversed, visible, _rows(rays * each[BACKGROUND_TRAVERSED]), visible_behind)

    def update(self) -> None:
        """Consider the counts of earlier batches."""
        while len(self.counts) > self.uncounted:
            counts = counts_of(self.counts.pop(0))
            self.empty_batches = 0 if counts[HITS] else self.empty_batches + 1
            if counts[RAYS] and not counts[HITS]:
                self._when_blind()
            self.per_ray = per_ray(counts, self.per_ray)

    def state(self) -> dict[str, Any]:
        """The estimates, and the counts that are not considered yet, as JSON values."""
        self.update()
        counted = [counts_of(one) for one in self.counts]
        self.counts = [*counted]
        return {"per_ray": dict(self.per_ray)} | ({"counted": counted} if counted else {})


def estimates_of(state: Mapping[str, Any]) -> tuple[dict[str, float], list[Later | dict[str, int]]]:
    """`per_ray` and `counts` of a saved state; raises KeyError, TypeError or ValueError if it is damaged."""
    means = {name: float(state["per_ray"][name]) for name in FIRST}
    if not all(0.0 <= value < np.inf for value in means.values()):
        raise ValueError(f"per_ray = {means}")
    counted = [{name: int(one[name]) for name in COUNTED} for one in state.get("counted", ())]
    if any(not 0 <= count < 2**31 for counts in counted for count in counts.values()):  # they are int32
        raise ValueError(f"counted = {counted}")
    return means, [*counted]


def per_ray(counts: Mapping[str, int], last: Mapping[str, float]) -> dict[str, float]:
    """The means of a batch; the last ones doubled, but for the hits, if not even one ray fitted."""
    if counts[RAYS]:
        return {name: counts[name] / counts[RAYS] for name in FIRST}
    return {name: value if name == HITS else 2.0 * max(value, 1.0) for name, value in last.items()}


def counts_of(counted: Later | dict[str, int]) -> dict[str, int]:
    """The numbers of COUNTED, once they are on the host."""
    counts = counted if isinstance(counted, dict) else dict(zip(COUNTED, counted.read().tolist(), strict=False))
    return dict.fromkeys(COUNTED, 0) | counts


def _rows(expected: float) -> int:
    """The number of rows for an expected number of samples."""
    return max(1, math.ceil(SPARE_SAMPLES * expected / ROUNDED_TO)) * ROUNDED_TO
