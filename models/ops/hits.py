"""Intersections of rays of packed samples with a surface, from the sample with the largest weight.

Samples and offsets are as in `volrend`. A ray hits the surface if its weights sum to more than `opacity`, and if at the
sample with the largest weight (the first of equal ones) the signed distance is below `reach` and decreases along the
ray by more than `steepest`. The point is the intersection of the ray with the tangent plane, the normal the gradient of
the distance. One ray in `every` is selected by the bits of the sample's position, so that the selection does not depend
on how a batch is split. Differentiable once, with respect to distances and gradients. Values that are not finite give
no hit, and rays without a hit have no gradient.

Second differences of the distance there are those along one tangent per ray.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.elementwise import SMALLEST_SQUARE, magnitude
from models.ops.source import Kernel, Source, only_first
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

    def given(inputs: list[Var], outputs: list[Var], cotangents: list[Var]) -> list[Var]:
        return [outputs[0], *inputs[1:3], inputs[-1], *cotangents[1:]]

    return SOURCE.differentiable("surface_hits", sizes, outputs, inputs, (1, 2), given)


surface_hits = Kernel(_reference, cpu=_native, cuda=_native)


@dataclass(frozen=True)
class Tangent:
    """The tangent of a normal n is n x (x, y, z)."""

    x: float
    y: float
    z: float
    step: float  # distance of points from the sample
    least: float = SMALLEST_SQUARE  # of the squared length of a tangent


@dataclass(frozen=True)
class Differences:
    """The layout of `second_differences`."""

    samples: int  # S
    width: int  # C
    step: float


CURVATURE_SOURCE = Source("curvature.h", (Tangent, Differences))


def _points_reference(at: Var, normals: Var, places: Var, tangent: Tangent) -> Var:
    """Two points per ray [2 R, 3], first all ahead, then all behind: at `step` from its sample along the tangent.

    at int32 [R]: the samples; normals [R, 3], of any length; places [S, 3]: of the samples.
    """
    crossed = np.cross(np.eye(3), [tangent.x, tangent.y, tangent.z]).astype(np.float32)
    tangents = jt.matmul(normals, jt.array(crossed))
    lengths = jt.maximum(tangents.sqr().sum(dim=-1, keepdims=True), tangent.least).sqrt()
    points, moves = places[jt.maximum(at, 0)], tangent.step * tangents / lengths
    return jt.concat([points + moves, points - moves], dim=0).stop_grad()


def _points_native(at: Var, normals: Var, places: Var, tangent: Tangent) -> Var:
    return CURVATURE_SOURCE.detached("tangent_points", tangent, [(2 * at.shape[0], 3)], [at, normals, places])[0]


def _sum_reference(at: Var, sdf: Var, around: Var, step: float) -> tuple[Var, Var]:
    """The sum [1] of |f(ahead) + f(behind) - 2 f(sample)| / step^2 over the hits, and their number [1].

    sdf [S, 1]: of the samples; around [2 R, C]: of the points, in the first column. Differentiable once, in both.
    """
    is_hit = (at >= 0).unsqueeze(1).float32()
    ahead, behind = around[:, :1].chunk(2, dim=0)
    second = (ahead + behind - 2.0 * sdf[jt.maximum(at, 0)]) * step**-2.0
    return (magnitude(second) * is_hit).sum(), is_hit.sum().stop_grad()


def _sum_native(at: Var, sdf: Var, around: Var, step: float) -> tuple[Var, Var]:
    layout, shapes = Differences(sdf.shape[0], around.shape[1], step), [(1,), (1,)]
    inputs = [at, sdf, around]
    total, count = CURVATURE_SOURCE.differentiable("second_differences", layout, shapes, inputs, (1, 2), only_first)
    return total, count.stop_grad()


tangent_points = Kernel(_points_reference, cpu=_points_native, cuda=_points_native)
second_differences = Kernel(_sum_reference, cpu=_sum_native, cuda=_sum_native)
