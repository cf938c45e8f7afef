"""The grid of a mesh, the values of the field at its points, and errors of an extraction that finds no surface.

N is the resolution: grid points per axis. Indices beyond the last point of an axis refer to that point, so that equal
blocks cover any grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from data.errors import UserError

SMALLEST_RESOLUTION = 2  # one cell: the two corners of the box


class EmptySurfaceError(Exception):
    """There is no surface to extract; the message gives the usual causes. Exit status 2; during a training it
    continues.
    """


def no_surface(kind: str) -> str:
    """The message for a model type without a surface."""
    return (
        f"No surface: a model of type {kind} has none, so there is no mesh; --mode validate_image and "
        "interpolate render it, and train.val_mesh_freq = 0 writes none during training."
    )


def not_finite(quantity: str) -> EmptySurfaceError:
    """The error for a field with NaN or infinity."""
    return EmptySurfaceError(
        f"No surface: {quantity} is not finite everywhere inside the bounds, so the training diverged; resume "
        "from an earlier checkpoint or train again with a lower learning rate."
    )


def no_crossing(lowest: float, highest: float, threshold: float, quantity: str) -> str:
    """The message for a field of this range."""
    return (
        f"No surface: {quantity} ranges from {lowest:.4g} to {highest:.4g} inside the bounds and never crosses "
        f"{0.0 - threshold:.4g}. Usual causes: the training is too short or has collapsed (check the validation "
        "images), the object lies outside the region of interest (--mode inspect draws it), or "
        "--mcube_threshold is too far from its default."
    )


BLOCK = 64  # cells per axis of a block; it takes about 20 MB and a second of a network
# A value closer to zero than this fraction of a typical value is moved away from zero, so that no vertex falls on a
# grid point, where several would coincide: a ten-thousandth of a cell, for a signed distance.
TIE = 1e-6

Progress = Callable[[Iterable], Iterable]


@dataclass(frozen=True)
class Grid:
    """N points per axis from `low` to `high`, inclusive, in blocks with coarse cells of width `stride`."""

    low: np.ndarray  # [3]
    high: np.ndarray  # [3]
    resolution: int
    stride: int  # a power of 2, at most BLOCK

    @classmethod
    def of(cls, low: np.ndarray, high: np.ndarray, resolution: int, coarsest: int) -> Grid:
        """The grid with the largest stride that leaves at least `coarsest` cells per axis.

        Raises UserError for a resolution below 2.
        """
        if resolution < SMALLEST_RESOLUTION:
            raise UserError(
                f"--resolution {resolution}: a mesh needs at least {SMALLEST_RESOLUTION} grid points per axis"
            )
        stride = 1
        while stride < BLOCK and resolution >= 2 * stride * coarsest:
            stride *= 2
        return cls(np.asarray(low, np.float64), np.asarray(high, np.float64), resolution, stride)

    @property
    def axes(self) -> list[np.ndarray]:
        """The coordinates along each axis, float32 [N]."""
        ends = zip(self.low, self.high, strict=True)
        return [np.linspace(low, high, self.resolution, dtype=np.float32) for low, high in ends]

    @property
    def spacing(self) -> np.ndarray:
        """The distance of neighbouring points, [3]."""
        return (self.high - self.low) / (self.resolution - 1)

    @property
    def blocks(self) -> int:
        """Blocks per axis."""
        return -(-(self.resolution - 1) // BLOCK)

    @property
    def cells(self) -> int:
        """Coarse cells of a block per axis."""
        return BLOCK // self.stride

    def coarse(self, block: tuple[int, int, int]) -> tuple[slice, ...]:
        """The slice of a block's coarse values."""
        return tuple(slice(self.cells * index, self.cells * (index + 1) + 1) for index in block)

    def within(self, block: tuple[int, int, int]) -> tuple[slice, ...]:
        """The part of a block's points that are grid points."""
        return tuple(slice(0, min(BLOCK, self.resolution - 1 - BLOCK * index) + 1) for index in block)

    def places(self, vertices: np.ndarray) -> np.ndarray:
        """Vertices [V, 3] in cells -> in the frame of the box."""
        return vertices / (self.resolution - 1.0) * (self.high - self.low) + self.low


class Samples:
    """The field at points of a grid, zero on the surface; counts the evaluations."""

    def __init__(
        self, outward: Callable[[np.ndarray], np.ndarray], quantity: str, grid: Grid, threshold: float, chunk: int
    ) -> None:
        self._outward, self._quantity, self._threshold, self._chunk = outward, quantity, threshold, chunk
        self._axes, self._last = grid.axes, grid.resolution - 1
        self._tie = 0.0
        self.queries = 0
        self.lowest, self.highest = np.inf, -np.inf  # range of the field

    def __call__(self, places: np.ndarray) -> np.ndarray:
        """Values float64 [P] at points int [P, 3], in cells; raises EmptySurfaceError if one is not finite."""
        values = np.empty(len(places))
        for start in range(0, len(places), self._chunk):
            part = np.minimum(places[start : start + self._chunk], self._last)
            points = np.stack([axis[part[:, index]] for index, axis in enumerate(self._axes)], axis=-1)
            field = np.asarray(self._outward(points), np.float32).reshape(-1)
            lowest, highest = float(field.min()), float(field.max())
            if not (np.isfinite(lowest) and np.isfinite(highest)):
                raise not_finite(self._quantity)
            self.lowest, self.highest = min(self.lowest, lowest), max(self.highest, highest)
            values[start : start + len(part)] = field.astype(np.float64) + self._threshold
        self.queries += len(places)
        return self.off_zero(values)

    def coarse(self, grid: Grid, progress: Progress) -> np.ndarray:
        """The values of the coarse lattice of all blocks, [blocks * cells + 1]^3."""
        count = -(-self._last // grid.stride) + 1
        index = np.arange(count) * grid.stride
        values = np.empty((count,) * 3)
        # planes at a time: the coordinates of all points would take more memory than the values
        slab = max(1, self._chunk // count**2)
        for start in progress(range(0, count, slab)):
            places = np.stack(np.meshgrid(index[start : start + slab], index, index, indexing="ij"), axis=-1)
            values[start : start + slab] = self(places.reshape(-1, 3)).reshape(-1, count, count)
        self._tie = TIE * float(np.median(np.abs(values)))
        return np.pad(self.off_zero(values), (0, grid.blocks * grid.cells + 1 - count), mode="edge")

    def off_zero(self, values: np.ndarray) -> np.ndarray:
        """Values moved away from zero."""
        return np.where(np.abs(values) < self._tie, np.where(values < 0, -self._tie, self._tie), values)
