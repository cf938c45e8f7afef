"""The grid of a mesh, the field at its points, and its blocks: halved, evaluated near the surface, and marched.

N is the resolution: grid points per axis. Indices beyond the last point of an axis refer to that point, so that equal
blocks cover any grid.

A lattice of K cells per axis has K + 1 values per axis. Halved, it has 2 K cells; the parent cell i contains the cells
2 i and 2 i + 1, and touches the 27 points of `parents`. A block has as many cells per axis as its coarse lattice times
the stride. Values are zero on the surface, negative inside. Points that are not evaluated are interpolated between
values of one sign, and so have that sign.

Rules decide which cells may contain the surface. A signed distance is Lipschitz continuous: it changes by at most its
gradient norm times the distance. A cell contains no surface if the mean distance of its corners from zero is too large
for that. The gradient norm is measured, multiplied by a margin, and compared with all later values; if it was too
small, the rule is widened. A density, or a truncated distance, has no such bound. A cell is refined if the sign changes
in it or in one of its 26 neighbours, or if values are close to zero relative to their variation. Surfaces that neither
rule predicts are followed into every cell and block that they enter.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import mcubes
import numpy as np
from scipy.ndimage import maximum_filter, minimum_filter

from data.errors import UserError
from data.scenes.frustum import children

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


BOTH_SIGNS = 3  # both bits of `_signs`
# To the 26 neighbours of a point, one of each opposite pair. Some direction is within 28 degrees of any gradient, so
# that the largest difference is at least 0.88 of its norm.
DIRECTIONS = tuple(step for step in itertools.product((-1, 0, 1), repeat=3) if step > (0, 0, 0))
Pair = Callable[[np.ndarray, np.ndarray], np.ndarray]


def along_axes(values: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply `change`, which acts on the first axis, to each axis in turn."""
    for axis in range(3):
        values = change(values.swapaxes(0, axis)).swapaxes(0, axis)
    return values


def halved(values: np.ndarray) -> np.ndarray:
    """Values [K + 1]^3 interpolated linearly on the lattice of half the spacing, [2 K + 1]^3.

    If all corners of a cell have one sign, so have all interpolated values in it.
    """

    def finer(there: np.ndarray) -> np.ndarray:
        fine = np.empty((2 * len(there) - 1, *there.shape[1:]), there.dtype)
        fine[::2], fine[1::2] = there, 0.5 * (there[1:] + there[:-1])
        return fine

    return along_axes(values, finer)


def corners(values: np.ndarray, pair: Pair) -> np.ndarray:
    """Reduce each cell's eight corners by `pair`: [K + 1]^3 -> [K]^3."""
    return along_axes(values, lambda there: pair(there[1:], there[:-1]))


def parents(values: np.ndarray, pair: Pair) -> np.ndarray:
    """Reduce the 27 points of each parent cell by `pair`: [2 K + 1]^3 -> [K]^3."""
    return along_axes(values, lambda there: pair(pair(there[:-1:2], there[1::2]), there[2::2]))


def mixed_corners(values: np.ndarray) -> np.ndarray:
    """The cells [K]^3 with corners of both signs."""
    return corners(_signs(values), np.bitwise_or) == BOTH_SIGNS


def mixed_parents(values: np.ndarray) -> np.ndarray:
    """The parent cells [K]^3 with values of both signs among their 27 points."""
    return parents(_signs(values), np.bitwise_or) == BOTH_SIGNS


def _signs(values: np.ndarray) -> np.ndarray:
    """A bit for each sign, uint8: 1 for values that are not negative, 2 for negative ones."""
    return (values < 0) + np.uint8(1)


def points_of_parents(cells: np.ndarray) -> np.ndarray:
    """The points [2 K + 1]^3 of marked parent cells [K]^3."""

    def touched(there: np.ndarray) -> np.ndarray:
        points = np.zeros((2 * len(there) + 1, *there.shape[1:]), bool)
        points[:-1:2], points[1::2] = there, there
        points[2::2] |= there
        return points

    return along_axes(cells, touched)


def steepest(values: np.ndarray, known: np.ndarray, spacing: np.ndarray) -> float:
    """The steepest slope between two neighbours, along any of DIRECTIONS, that are both known; 0 for none."""
    shape = [count + 2 for count in values.shape]  # a rim of unknown points: no neighbour is looked for beyond it
    padded = np.full(shape, np.nan)  # unknown points, which fmax ignores
    padded[1:-1, 1:-1, 1:-1][known] = values[known]
    padded = padded.reshape(-1)
    places = np.flatnonzero(~np.isnan(padded))
    here, square = padded[places], 0.0
    for step in DIRECTIONS:
        there = places + int(np.dot(step, (shape[1] * shape[2], shape[2], 1)))
        most = float(np.fmax.reduce(np.square(padded[there] - here), initial=0.0))
        square = max(square, most / float(np.sum(np.square(step * spacing))))
    return float(np.sqrt(square))


# Factor on the largest measured gradient norm: 1.13 for the directions (DIRECTIONS), the rest for unmeasured
# points.
SLOPE_MARGIN = 1.25
# Fractions of the range of values in a cell, or on the coarse lattice in a cell and its neighbours, below which a value
# may be near a crossing. For a NeRF after 1000 steps, with a rough density, these numbers find all 723 components with
# 4.7 % of the queries; 1/2 and 1/2 miss 46 of the smallest with 2.4 %.
NEAR_FINE, NEAR_COARSE = 3.0, 1.0
# Minimum number of cells of the coarsest lattice per axis. Without a bound, components smaller than such a cell may be
# missed.
COARSEST_BOUNDED = 32
COARSEST_UNBOUNDED = 100


@dataclass(frozen=True)
class Refinement:
    """Decides which cells are refined; values are zero on the surface, negative inside."""

    slope: float | None  # an upper bound of the difference of two values over their distance; None for none
    level: float = 0.0  # value of the field at the surface
    evened: Callable[[np.ndarray], np.ndarray] | None = None  # for fields without a bound, see `LevelSet`

    def may_cross(self, values: np.ndarray, spacing: np.ndarray, coarse: bool) -> np.ndarray:
        """The cells [K]^3 that the surface may cross; values [K + 1]^3, `spacing` [3] apart.

        With a bound: cells whose corners have a mean distance from zero of at most the bound times their mean distance
        from a point, which is convex, so that its maximum in the cell is at the corners, where it is equal. Without
        one: cells with a sign change or values close to zero relative to their range. coarse: the values of the coarse
        lattice, where no cell has been excluded yet; without a bound its cells include their neighbours.
        """
        if self.slope is not None:
            cube = np.stack(np.meshgrid(*[(0.0, step) for step in spacing], indexing="ij"), axis=-1)
            reach = float(np.linalg.norm(cube, axis=-1).mean())
            return corners(np.abs(values), np.add) / 8.0 <= self.slope * reach
        even = values if self.evened is None else self.evened(values + self.level) - self.evened(np.array(self.level))
        highest, lowest, crossing = corners(even, np.maximum), corners(even, np.minimum), mixed_corners(values)
        if coarse:
            highest, lowest = maximum_filter(highest, 3), minimum_filter(lowest, 3)
            crossing = maximum_filter(crossing, 3)
        near = NEAR_COARSE if coarse else NEAR_FINE
        return crossing | (corners(np.abs(even), np.minimum) <= near * (highest - lowest))

    def widened(self, slope: float) -> Refinement:
        """The rule after a gradient norm was found; unchanged if it already allows for it."""
        return self if self.slope is None or slope <= self.slope else replace(self, slope=SLOPE_MARGIN * slope)

    def text(self) -> str:
        """The rule as a text for the log."""
        return "near sign changes" if self.slope is None else f"largest gradient norm {self.slope:.3g}"


Sample = Callable[[np.ndarray], np.ndarray]  # points int [P, 3] in the block, in cells -> values [P]


def refine(
    values: np.ndarray,
    active: np.ndarray,
    forced: np.ndarray,
    stride: int,
    spacing: np.ndarray,
    rule: Refinement,
    sample: Sample,
) -> tuple[np.ndarray, float]:
    """Halve the lattice down to the block's cells, refining only cells that `rule` cannot exclude.

    An excluded cell with values of both signs on its border is refined, too.

    Args:
        values: [K + 1]^3, evaluated on the coarse lattice of the block.
        active, forced: bool [K]^3, the coarse cells to refine, and those to evaluate completely.
        stride: cells of the block per coarse cell, a power of 2.
        spacing: [3], of the block's cells, working-frame units.

    Returns:
        Values [B + 1]^3, evaluated at the corners of every cell that the surface crosses; the largest gradient norm.
    """
    known, active, slope = np.ones(values.shape, bool), active | forced, 0.0
    while stride > 1:
        stride //= 2
        values, before = halved(values), known
        known = np.zeros(values.shape, bool)
        known[::2, ::2, ::2] = before
        active = _evaluate(values, known, active, stride, sample)
        slope = max(slope, steepest(values, known, stride * spacing))
        if stride > 1:
            forced = children(forced)
            active = children(active) & rule.may_cross(values, stride * spacing, coarse=False) | forced
    return values, slope


def _evaluate(values: np.ndarray, known: np.ndarray, cells: np.ndarray, stride: int, sample: Sample) -> np.ndarray:
    """Evaluate, in place, the points of these parent cells and of all cells that the surface enters from them.

    Returns the evaluated parent cells, including the given ones.
    """
    wanted = cells | mixed_parents(values)
    while True:
        points = points_of_parents(wanted) & ~known
        if points.any():
            values[points] = sample(np.argwhere(points) * stride)
            known |= points
        further = mixed_parents(values) & ~wanted
        if not further.any():
            return wanted
        wanted |= further


def marching_cubes(values: np.ndarray, origin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vertices float64 [V, 3], in cells from `origin` [3], and faces int32 [F, 3] of a block's surface.

    A vertex lies on an edge of the lattice. Its position depends only on that edge, so that two blocks with a common
    edge compute the same numbers.
    """
    crossed = np.argwhere(mixed_corners(values))
    if not len(crossed):
        return np.zeros((0, 3)), np.zeros((0, 3), np.int32)
    low, high = crossed.min(axis=0), crossed.max(axis=0) + 2
    values, origin = values[tuple(map(slice, low, high))], origin + low
    places, faces = mcubes.marching_cubes(-values, 0.0)
    whole = np.floor(places).astype(np.int64)
    axis = np.argmax(places - whole, axis=1)
    rows = np.arange(len(places))
    further = whole.copy()
    further[rows, axis] += places[rows, axis] > whole[rows, axis]
    here, there = values[tuple(whole.T)], values[tuple(further.T)]
    exact = (whole + origin).astype(np.float64)
    exact[rows, axis] += here / np.where(here == there, 1.0, here - there) * (further != whole)[rows, axis]
    return exact, faces.astype(np.int32)


def face_signs(values: np.ndarray) -> np.ndarray:
    """Whether the points of the six faces are inside, bool [3 axes, 2 ends, B + 1, B + 1]."""
    return np.stack([np.moveaxis(values, axis, 0)[[0, -1]] < 0 for axis in range(3)])
