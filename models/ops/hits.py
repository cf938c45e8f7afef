"""Intersections of rays of packed samples with a surface, from the sample with the largest weight.

Samples and offsets are as in `volrend`. A ray hits the surface if its weights sum to more than `opacity`, and if at the
sample with the largest weight (the first of equal ones) the signed distance is below `reach` and decreases along the
ray by more than `steepest`. The point is the intersection of the ray with the tangent plane, the normal the gradient of
the distance. One ray in `every` is selected by the bits of the sample's position, so that the selection does not depend
on how a batch is split. Differentiable once, with respect to distances and gradients. Values that are not finite give
no hit, and rays without a hit have no gradient.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.source import Kernel, Source
from models.structs import Var


@dataclass(frozen=True)
class Hits:
    """The sizes and constants that reference and native source share."""

    samples: int  # S
    every: int
    opacity: float
    reach: float  # working-frame units
    steepest: float


# Of R rays: the sample with the largest weight, int32 [R], -1 for rays without a hit and rays that are not selected;
# points and normals [R, 3], the latter of any length and outwards, zero without a hit.
SurfaceHits = tuple[Var, Var, Var]
SOURCE = Source("hits.h", (Hits,))


def _reference(
    sdf: Var, gradient: Var, weights: Var, places: Var, directions: Var, offsets: Var, sizes: Hits
) -> SurfaceHits:
    """Rays are selected in NumPy.

    Args:
        sdf, gradient: [S, 1] and [S, 3] of the samples.
        weights: [S, 1], not differentiated.
        places, directions: [S, 3], working frame; directions are unit vectors.
        offsets: int32 [R + 1].
    """
    distances, slopes, each, positions, along = (
        value.numpy().astype(np.float32) for value in (sdf, gradient, weights, places, directions)
    )
    at = np.full(offsets.shape[0] - 1, -1, np.int32)
    is_chosen = positions.view(np.uint32).sum(axis=1, dtype=np.uint32) // 64 % sizes.every == 0
    with np.errstate(invalid="ignore", over="ignore"):
        descent = (slopes * along).sum(axis=1)
        is_near = (descent < -sizes.steepest) & (np.abs(distances[:, 0]) < sizes.reach) & np.isfinite(descent)
        for ray, (begin, end) in enumerate(itertools.pairwise(offsets.numpy())):
            total = each[begin:end].sum()
            if np.isfinite(total) and total > sizes.opacity:
                largest = begin + int(each[begin:end].argmax())
                at[ray] = largest if is_near[largest] and is_chosen[largest] else -1
    row, is_hit = jt.array(np.maximum(at, 0)), jt.array(at[:, None] >= 0)
    direction, normal = directions[row], gradient[row]
    # `ternary` needs finite derivatives on both sides.
    slope = (normal * direction).sum(dim=1, keepdims=True)
    slope = jt.ternary(is_hit, slope, -jt.ones_like(slope))
    points = places[row] - sdf[row] / slope * direction
    wide = is_hit.broadcast(points.shape)
    points, normals = (jt.ternary(wide, value, jt.zeros_like(value)) for value in (points, normal))
    return jt.array(at).stop_grad(), points, normals


def _native(
    sdf: Var, gradient: Var, weights: Var, places: Var, directions: Var, offsets: Var, sizes: Hits
) -> SurfaceHits:
    rays = offsets.shape[0] - 1
    outputs = [((rays,), "int32"), (rays, 3), (rays, 3)]
    inputs = [offsets, sdf, gradient, weights, places, directions]

    def given(inputs: list[Var], found: list[Var], cotangents: list[Var]) -> list[Var]:
        return [found[0], *inputs[1:3], inputs[-1], *cotangents[1:]]

    return SOURCE.differentiable("surface_hits", sizes, outputs, inputs, (1, 2), given)


surface_hits = Kernel(_reference, cpu=_native, cuda=_native)
