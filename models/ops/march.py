"""Packed samples: those along rays in occupied cells of a grid over the cube [-1, 1]^3; compaction, merged order.

The candidate depths of a ray are near + (k + jitter) step below far, k = 0, 1, 2, ..., until one is in a solid cell.
Those in occupied cells are its samples, each the midpoint of an interval of length `step`, in this order and packed as
in `volrend`. Not differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data.scenes.frustum import any_in_blocks, children
from models.machine.backend import jt
from models.ops.source import Kernel, Source
from models.structs import Var

EMPTY, OCCUPIED, SOLID = 0, 1, 2  # cells: empty, occupied, or inside the object, where rays end
LARGEST_BOX = 5  # SOLID + n, n = 1 to 5: an empty cell in an aligned box of 2^n empty cells along an edge
MOST_STEPS = 1 << 16  # per ray: bounds the loop for any far distance


@dataclass(frozen=True)
class March:
    """The sizes and constants that reference and native source share."""

    cells: int  # along an edge of the cube
    samples: int  # S, the maximum number of samples
    step: float  # distance of depths, working-frame units
    most_steps: int = MOST_STEPS


@dataclass(frozen=True)
class PackedSamples:
    """S packed samples. Rows from offsets[R] on are unused and zero."""

    offsets: Var  # int32 [R + 1]: the samples of ray r are offsets[r] to offsets[r + 1]
    kept: Var  # int32 [1]: the number of rays, from the first, with all their samples; the others have none
    rays: Var  # int32 [S]: the ray of a sample
    depths: Var  # [S, 1]
    points: Var  # [S, 3]
    directions: Var  # [S, 3], unit

    def first(self, count: int) -> PackedSamples:
        """The first samples only."""
        samples = (value[:count] for value in (self.rays, self.depths, self.points, self.directions))
        return PackedSamples(self.offsets, self.kept, *samples)


SOURCE = Source("march.h", (March,), (("OCCUPIED", OCCUPIED), ("SOLID", SOLID)))


def with_empty_boxes(cells: np.ndarray) -> np.ndarray:
    """The cells, uint8 [N, N, N]; empty ones in empty boxes name the largest of them, which rays then cross at once."""
    used = [cells != EMPTY]
    for _ in range(LARGEST_BOX):
        used.append(any_in_blocks(used[-1]))
    box = np.zeros_like(used[-1], np.uint8)  # n of the largest empty box
    for n in range(LARGEST_BOX, 0, -1):
        count = len(used[n - 1])
        box = children(np.where(used[n] | (box > 0), box, np.uint8(n)))[:count, :count, :count]
    return np.where((cells == EMPTY) & (box > 0), box + np.uint8(SOLID), cells)


def _reference(
    origins: Var, directions: Var, near: Var, far: Var, jitter: Var, occupied: Var, step: float, samples: int
) -> PackedSamples:
    """Tests every candidate depth of every ray.

    Args:
        origins, directions: [R, 3].
        near, far, jitter: [R, 1]; jitter in [0, 1).
        occupied: uint8 [N, N, N] by x, y, z: EMPTY, OCCUPIED, SOLID or an empty box. The outside of the cube is empty.
        step: working-frame units.
        samples: S. The first ray that exceeds it, and all rays after it, get none.
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
    columns = rays.astype(np.int32), depths[rays, steps_taken, None], points[rays, steps_taken], d[rays]
    return _padded(offsets, kept, columns, samples)


def _padded(offsets: np.ndarray, kept: int, columns: Sequence[np.ndarray], samples: int) -> PackedSamples:
    """Packed samples from rays, depths, points and directions of the used rows."""
    whole = [offsets.astype(np.int32), np.array([kept], np.int32)]
    for values in columns:
        padding = np.zeros((samples - len(values), *values.shape[1:]), values.dtype)
        whole.append(np.concatenate([values, padding]))
    return PackedSamples(*(jt.array(values).stop_grad() for values in whole))


def _native(
    origins: Var, directions: Var, near: Var, far: Var, jitter: Var, occupied: Var, step: float, samples: int
) -> PackedSamples:
    """One operation: steps from cell to cell, and over empty boxes at once."""
    layout, inputs = March(occupied.shape[0], samples, step), [origins, directions, near, far, jitter, occupied]
    return native_samples(SOURCE, "march", layout, origins.shape[0], inputs)


def native_samples(source: Source, name: str, layout: Any, rays: int, inputs: Sequence[Var]) -> PackedSamples:
    """The packed samples of R rays that a native operation gives: `layout.samples` rows."""
    whole = [((count,), "int32") for count in (rays + 1, 1, layout.samples)]
    outputs = [*whole, *((layout.samples, width) for width in (1, 3, 3))]
    return PackedSamples(*source.detached(name, layout, outputs, inputs))


march = Kernel(_reference, cpu=_native, cuda=_native)


@dataclass(frozen=True)
class Compact:
    """The layout of `compact`."""

    given: int  # number of input samples
    samples: int  # maximum number of kept samples


@dataclass(frozen=True)
class Fill:
    """The layout of `fill`."""

    given: int  # number of input samples
    others: int  # number of points of no ray, at least one
    samples: int  # number of output samples


@dataclass(frozen=True)
class Merge:
    """The layout of `merged_order`."""

    near: int  # S
    far: int  # F


COMPACT_SOURCE = Source("compact.h", (Compact, Fill, Merge))


def _compact_reference(traversed: PackedSamples, is_kept: Var, samples: int) -> PackedSamples:
    """The samples with is_kept (bool [S]) of the first rays of `traversed` that fit the sample budget `samples`."""
    offsets, kept = traversed.offsets.numpy(), int(traversed.kept.item())
    chosen = is_kept.numpy().astype(bool)
    ends = np.concatenate([[0], np.cumsum(chosen[: offsets[-1]])])[offsets]
    kept = min(kept, int((ends[1:] <= samples).sum()))
    rows = np.flatnonzero(chosen[: offsets[kept]])
    samples_of = (traversed.rays, traversed.depths, traversed.points, traversed.directions)
    return _padded(np.minimum(ends, ends[kept]), kept, [values.numpy()[rows] for values in samples_of], samples)


def _compact_native(traversed: PackedSamples, is_kept: Var, samples: int) -> PackedSamples:
    layout = Compact(traversed.rays.shape[0], samples)
    inputs = [
        traversed.offsets,
        traversed.kept,
        is_kept,
        traversed.rays,
        traversed.depths,
        traversed.points,
        traversed.directions,
    ]
    return native_samples(COMPACT_SOURCE, "compact", layout, traversed.offsets.shape[0] - 1, inputs)


def _order_reference(near: PackedSamples, far: PackedSamples) -> tuple[Var, Var]:
    """The merged order by ray and depth of two sets of samples of the same rays, S and F.

    Samples of no ray come last; at equal depths those of `near` come first. Returns the position of each sample (first
    all S, then all F) and the sample at each position: int32 [S + F] both.
    """
    keys = []
    for number, one in enumerate((near, far)):
        used, size = int(one.offsets.numpy()[-1]), one.rays.shape[0]
        ray = np.where(np.arange(size) < used, one.rays.numpy(), one.offsets.shape[0])
        depth = np.where(np.arange(size) < used, one.depths.numpy()[:, 0], 0.0)
        keys.append((np.full(size, number), depth, ray))
    sample = np.lexsort([np.concatenate(pair) for pair in zip(*keys, strict=True)]).astype(np.int32)
    place = np.empty_like(sample)
    place[sample] = np.arange(len(sample))
    return jt.array(place).stop_grad(), jt.array(sample).stop_grad()


def _order_native(near: PackedSamples, far: PackedSamples) -> tuple[Var, Var]:
    sizes = near.rays.shape[0], far.rays.shape[0]
    inputs = [near.offsets, near.rays, near.depths, far.offsets, far.rays, far.depths]
    place, sample = COMPACT_SOURCE.detached("merged_order", Merge(*sizes), [((sum(sizes),), "int32")] * 2, inputs)
    return place, sample


def _fill_reference(near: PackedSamples, others: Var, samples: int) -> PackedSamples:
    """Exactly `samples` samples: those of rays, then the points `others` [P, 3], repeated cyclically.

    Depth, direction and ray of the points are 0.
    """
    used = int(near.offsets.numpy()[-1])
    rest = others.numpy()[np.arange(samples - used) % others.shape[0]]
    rays, depths, points, directions = (
        values.numpy()[:used] for values in (near.rays, near.depths, near.points, near.directions)
    )
    own = rays, depths, np.concatenate([points, rest]), directions
    return _padded(near.offsets.numpy(), int(near.kept.item()), own, samples)


def _fill_native(near: PackedSamples, others: Var, samples: int) -> PackedSamples:
    layout = Fill(near.rays.shape[0], others.shape[0], samples)
    outputs = [((samples,), "int32"), *((samples, width) for width in (1, 3, 3))]
    inputs = [near.offsets, near.rays, near.depths, near.points, near.directions, others]
    return PackedSamples(near.offsets, near.kept, *COMPACT_SOURCE.detached("fill", layout, outputs, inputs))


compact = Kernel(_compact_reference, cpu=_compact_native, cuda=_compact_native)
merged_order = Kernel(_order_reference, cpu=_order_native, cuda=_order_native)
fill = Kernel(_fill_reference, cpu=_fill_native, cuda=_fill_native)


def permuted(values: Var, place: Var, sample: Var) -> Var:
    """Rows of values [S + F, C] in an order of `merged_order`."""
    return _Permuted(place, sample)(values)


class _Permuted(jt.Function):
    """Rows in permuted order; the cotangent is permuted by the inverse."""

    def __init__(self, place: Var, sample: Var) -> None:
        super().__init__()
        self.place, self.sample = place, sample

    def execute(self, values: Var) -> Var:
        return values[self.sample]

    def grad(self, d_values: Var) -> Var:
        return d_values[self.place]
