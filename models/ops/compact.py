"""Compaction of packed samples, and the merged order of two packed sets along each ray. Not differentiable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.kernel import Kernel
from models.ops.march import PackedSamples
from models.ops.source import Source
from models.structs import Var


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


SOURCE = Source("compact.h", (Compact, Fill, Merge))


def _compact_reference(found: PackedSamples, is_kept: Var, samples: int) -> PackedSamples:
    """The samples with is_kept (bool [S]) of the first rays of `found` that fit the sample budget `samples`."""
    offsets, kept = found.offsets.numpy(), int(found.kept.item())
    chosen = is_kept.numpy().astype(bool)
    ends = np.concatenate([[0], np.cumsum(chosen[: offsets[-1]])])[offsets]
    kept = min(kept, int((ends[1:] <= samples).sum()))
    rows = np.flatnonzero(chosen[: offsets[kept]])

    def spread(values: Var) -> Var:
        result = np.zeros((samples, *values.shape[1:]), str(values.dtype))
        result[: len(rows)] = values.numpy()[rows]
        return jt.array(result).stop_grad()

    return PackedSamples(
        jt.array(np.minimum(ends, ends[kept]).astype(np.int32)).stop_grad(),
        jt.array(np.array([kept], np.int32)).stop_grad(),
        *(spread(values) for values in (found.rays, found.depths, found.points, found.directions)),
    )


def _compact_native(found: PackedSamples, is_kept: Var, samples: int) -> PackedSamples:
    layout = Compact(found.rays.shape[0], samples)
    outputs = [(found.offsets.shape, "int32"), ((1,), "int32"), ((samples,), "int32")]
    outputs += [((samples, width), "float32") for width in (1, 3, 3)]
    inputs = [found.offsets, found.kept, is_kept, found.rays, found.depths, found.points, found.directions]
    return PackedSamples(*(value.stop_grad() for value in SOURCE.call("compact", layout, outputs, inputs)))


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
    place, sample = SOURCE.call("merged_order", Merge(*sizes), [((sum(sizes),), "int32")] * 2, inputs)
    return place.stop_grad(), sample.stop_grad()


def _fill_reference(found: PackedSamples, others: Var, samples: int) -> PackedSamples:
    """Exactly `samples` samples: those of rays, then the points `others` [P, 3], repeated cyclically.

    Depth, direction and ray of the points are 0.
    """
    used = int(found.offsets.numpy()[-1])
    rest = others.numpy()[np.arange(samples - used) % others.shape[0]]

    def filled(values: Var, rest: np.ndarray | None = None) -> Var:
        spare = np.zeros((samples - used, *values.shape[1:]), str(values.dtype)) if rest is None else rest
        return jt.array(np.concatenate([values.numpy()[:used], spare])).stop_grad()

    views = (filled(value) for value in (found.rays, found.depths, found.directions))
    rays, depths, directions = views
    return PackedSamples(found.offsets, found.kept, rays, depths, filled(found.points, rest), directions)


def _fill_native(found: PackedSamples, others: Var, samples: int) -> PackedSamples:
    layout = Fill(found.rays.shape[0], others.shape[0], samples)
    outputs = [((samples,), "int32"), *(((samples, width), "float32") for width in (1, 3, 3))]
    inputs = [found.offsets, found.rays, found.depths, found.points, found.directions, others]
    moved = (value.stop_grad() for value in SOURCE.call("fill", layout, outputs, inputs))
    return PackedSamples(found.offsets, found.kept, *moved)


compact = Kernel(_compact_reference, cpu=_compact_native, cuda=_compact_native)
merged_order = Kernel(_order_reference, cpu=_order_native, cuda=_order_native)
fill = Kernel(_fill_reference, cpu=_fill_native, cuda=_fill_native)
