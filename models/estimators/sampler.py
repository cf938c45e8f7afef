"""An endless sequence of batches of packed samples, each with as many rays as fit the sample budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from data.cameras import SPAN_LENGTH
from data.errors import UserError
from data.rays import Rays
from data.scenes.sampler import damage_named, require_views, restore_generator
from data.scenes.scene import Scene
from models.estimators.batch import COUNTED, PackedBatch, Placed, counts_of
from models.estimators.conf import POINTS_SHARE
from models.estimators.drawn_pixels import HostPixels, pixels_of, windows_of
from models.estimators.occupancy import OccupancyGrid
from models.machine.backend import device_info
from models.ops.later import Later
from models.plan import TrainingPlan
from models.structs import MASK_THRESHOLD

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


# Mean numbers per ray of a batch, from which a later one is sized, by the names of `batch.COUNTED`.
FIRST = {"near": FIRST_PER_RAY, "walked": FIRST_PER_RAY, "far": FIRST_PER_RAY, "asked": FIRST_PER_RAY, "hits": 1.0}


def per_ray(counts: Mapping[str, int], last: Mapping[str, float]) -> dict[str, float]:
    """The means of a batch; the last ones doubled, but for the hits, if not even one ray fitted."""
    if counts["rays"]:
        return {name: counts[name] / counts["rays"] for name in FIRST}
    return {name: value if name == "hits" else 2.0 * max(value, 1.0) for name, value in last.items()}


class SampledEstimator(Protocol):
    """The properties of the estimator that the sampler reads for each batch."""

    plan: TrainingPlan
    grid: OccupancyGrid
    most_beyond: int  # maximum number of samples of the background per batch; 0: there is no background
    step_size: float  # distance of samples, working-frame units
    random_share: float  # minimum fraction of the samples that are random points of the hull
    points: np.ndarray | None  # SfM points, float32 [A, 3]; None if they are not used in this step
    most_compared: int | None  # maximum number of rays whose patches are compared; None: no comparison

    skips_hidden: bool  # whether samples with negligible transmittance are skipped

    def place(self, batch: PackedBatch) -> Placed:
        """The samples of a batch."""


class PackedSampler:
    """An endless sequence of batches, each with as many rays as fit the sample budget."""

    def __init__(
        self, scene: Scene, estimator: SampledEstimator, most_rays: int, samples: int, generator: np.random.Generator
    ) -> None:
        """A batch has `samples` samples: those of its rays, random points and SfM points."""
        self._estimator, self._scene = estimator, scene
        self._most_rays, self._samples = most_rays, samples
        self._generator = generator
        self._per_ray = dict(FIRST)
        self._empty = 0  # consecutive batches without samples
        self._last: PackedBatch | None = None
        self._counted: list[Later | dict[str, int]] = []  # of the last batches, not considered yet
        self._uncounted = UNCOUNTED[device_info().name]
        centres = None if estimator.most_beyond else estimator.grid.centres()
        self._windows = windows_of(scene, centres, estimator.grid.side)
        self._pixels = pixels_of(scene, self._windows)
        self.probes = self._probe_rays()  # the same in every run

    def next(self) -> PackedBatch:
        """The next batch; raises UserError if the last MOST_EMPTY batches had no samples, so no image sees the hull."""
        self._follow()
        estimator = self._estimator
        share = estimator.random_share if estimator.points is None else max(estimator.random_share, POINTS_SHARE)
        free = int(share * self._samples)
        drawn, sizes = self._sizes(free)
        pixels, jitter = self._pixels.draw(self._generator, drawn)
        others, points = self._others(free)
        self._last = PackedBatch(
            **vars(pixels.rays),
            jitter=jitter,
            rgb=pixels.rgb,
            view=pixels.view,
            others=others,
            step=np.array([estimator.step_size], np.float32),
            sizes=sizes,
            place=estimator.place,
            mask=pixels.mask if estimator.plan.uses_masks else None,
            anchors=points,
            every=self._every(drawn),
        )
        return self._last

    def _sizes(self, free: int) -> tuple[int, np.ndarray]:
        """The number of rays of the next batch, and `PackedBatch.sizes`, both estimated from an earlier batch.

        `free` is the number of samples that belong to no ray. On the CPU an unused row takes as much time as a sample;
        so a batch whose rays are limited by the background has fewer samples of the region.
        """
        estimator, beyond, each = self._estimator, self._estimator.most_beyond, self._per_ray
        most = self._samples - free
        rays = most / max(each["near"], 1 / most)
        if beyond:
            rays = min(rays, beyond / max(each["far"], 1 / beyond))
        rays = int(np.clip(rays, 1, self._most_rays))
        if not estimator.skips_hidden:
            return rays, np.array([self._samples, most, most, 0, 0], np.int32)
        longest = min(most, math.ceil(SPAN_LENGTH / estimator.step_size) + 1)  # samples of a single ray
        walked = min(max(longest, _rows(rays * each["walked"])), TRAVERSED_TO_VISIBLE * most)
        if not beyond:
            return rays, np.array([self._samples, walked, most, 0, 0], np.int32)
        near = min(most, max(longest, _rows(rays * each["near"])))
        far = min(beyond, _rows(rays * each["far"]))
        return rays, np.array([near + free, walked, near, _rows(rays * each["asked"]), far], np.int32)

    def _follow(self) -> None:
        """Update the estimates for the next batch from the sample counts of earlier ones."""
        last, self._last = self._last, None
        if last is not None and "placed" in vars(last) and (counted := last.placed[2]) is not None:
            self._counted.append(counted)
        while len(self._counted) > self._uncounted:
            self._consider(_read(self._counted.pop(0)))

    def _consider(self, counts: Mapping[str, int]) -> None:
        self._empty = 0 if counts["hits"] else self._empty + 1
        if counts["rays"] and not counts["hits"]:
            self._estimator.grid.open()
        if self._empty == MOST_EMPTY:
            raise UserError(
                f"{self._scene.name}: no photograph sees the region where the object may be; check the cameras, "
                "the masks and the region of interest"
            )
        self._per_ray = per_ray(counts, self._per_ray)

    def _others(self, free: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Points [P, 3] that belong to no ray, SfM points first, and the number of SfM points.

        `free` is the minimum number of samples that are available for them; if more are available, points are repeated.
        """
        grid, points = self._estimator.grid, self._estimator.points
        count = free + int(SPARE_POINTS * self._samples)
        if points is None:
            return grid.random_points(count, self._generator), None
        some = self._generator.integers(len(points), size=min(free, int(POINTS_SHARE * self._samples)))
        others = grid.random_points(count - len(some), self._generator)
        return np.concatenate([points[some], others]), np.array([len(some)], np.int32)

    def _every(self, rays: int) -> np.ndarray | None:
        """`PackedBatch.every`, from the expected number of rays with samples."""
        most = self._estimator.most_compared
        return None if most is None else np.array([max(1, math.ceil(rays * self._per_ray["hits"] / most))], np.int32)

    def _probe_rays(self) -> Rays | None:
        """Rays of mask pixels that cross the hull; with a background, rays of all pixels; None if there are neither."""
        is_open = self._estimator.most_beyond > 0
        if not is_open and not self._estimator.plan.uses_masks:
            return None
        count = OPEN_PROBES if is_open else PROBES
        pixels = HostPixels(self._scene, self._windows).pixels(np.random.default_rng(0), count, self._scene.n_views)
        if is_open or pixels.mask is None:
            return pixels.rays
        rays = pixels.rays.at(pixels.mask[:, 0] > MASK_THRESHOLD)
        return rays.at(self._meets(rays))

    def _meets(self, rays: Rays) -> np.ndarray:
        """Whether rays have samples in the current cells: bool [R]."""
        if not len(rays):
            return np.zeros(0, bool)
        grid = self._estimator.grid
        return np.diff(grid.probe(rays, grid.side).offsets.numpy()) > 0

    def lost_share(self) -> float:
        """The fraction of the rays of the masks that cross the hull but no occupied cell."""
        if self.probes is None or not len(self.probes):
            return 0.0
        return 1.0 - float(self._meets(self.probes).mean())

    def state(self) -> dict[str, Any]:
        """The state that determines the next batches besides that of the estimator, as JSON values."""
        self._follow()
        state: dict[str, Any] = {"per_ray": self._per_ray, "views": self._scene.n_views}
        counted = [_read(one) for one in self._counted]
        self._counted = [*counted]
        if counted:
            state["counted"] = counted
        return state | {"generator": self._generator.bit_generator.state}

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
        self._per_ray, self._last, self._counted = means, None, [*counted]


def _read(counted: Later | dict[str, int]) -> dict[str, int]:
    return counted if isinstance(counted, dict) else counts_of(counted)


def _rows(expected: float) -> int:
    """The number of rows for an expected number of samples."""
    return max(1, math.ceil(SPARE_SAMPLES * expected / ROUNDED_TO)) * ROUNDED_TO
