"""Where rays of packed samples meet a surface: from the heaviest sample of each the step that its distance asks for.

Samples and offsets are as in `packed`. A ray meets the surface where its samples weigh more than `opacity` in all, and
at the heaviest of them, the first of equal ones, the signed distance is below `reach` and falls along the ray by more
than `steepest`. The point is that of the tangent plane on the ray, the normal the gradient of the distance. By the bits
of the sample's place one ray in `every` is chosen, so that the choice does not hang on what part of a batch it is taken
from. Differentiable once, in distances and gradients; what is not finite meets nothing, and no ray that meets nothing
has a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.kernel import Kernel
from models.ops.network import filled, shapes32
from models.ops.source import Source
from models.structs import Var


@dataclass(frozen=True)
class Hits:
    """The layout."""

    samples: int  # S
    every: int
    opacity: float
    reach: float  # working-frame units
    steepest: float


@dataclass(frozen=True)
class SurfaceHits:
    """What R rays meet."""

    at: Var  # int32 [R], the heaviest sample; -1 where a ray meets nothing, or is not chosen
    points: Var  # [R, 3]; zeros there
    normals: Var  # [R, 3], of any length, outwards; zeros there


SOURCE = Source("hits.h", (Hits,))


def _reference(
    sdf: Var, gradient: Var, weights: Var, places: Var, directions: Var, offsets: Var, sizes: Hits
) -> SurfaceHits:
    """Which rays is decided in numpy.

    Args:
        sdf, gradient: [S, 1] and [S, 3] of the samples.
        weights: [S, 1], not differentiated.
        places, directions: [S, 3], working frame; directions are unit.
        offsets: int32 [R + 1].
    """
    values = [value.numpy().astype(np.float32) for value in (sdf, gradient, weights, places, directions)]
    at = _sought(*values, offsets.numpy(), sizes)
    row, is_hit = jt.array(np.maximum(at, 0)), jt.array(at[:, None] >= 0)
    direction, normal = directions[row], gradient[row]
    # What is chosen between has no infinite slopes on the other side.
    slope = (normal * direction).sum(dim=1, keepdims=True)
    slope = jt.ternary(is_hit, slope, -jt.ones_like(slope))
    points = places[row] - sdf[row] / slope * direction
    wide = is_hit.broadcast(points.shape)
    points, normals = (jt.ternary(wide, value, jt.zeros_like(value)) for value in (points, normal))
    return SurfaceHits(jt.array(at).stop_grad(), points, normals)


def _sought(
    sdf: np.ndarray,
    gradient: np.ndarray,
    weights: np.ndarray,
    places: np.ndarray,
    directions: np.ndarray,
    offsets: np.ndarray,
    sizes: Hits,
) -> np.ndarray:
    """`SurfaceHits.at`."""
    found = np.full(len(offsets) - 1, -1, np.int32)
    is_chosen = places.view(np.uint32).sum(axis=1, dtype=np.uint32) // 64 % sizes.every == 0
    with np.errstate(invalid="ignore", over="ignore"):
        slope = (gradient * directions).sum(axis=1)
        is_near = (slope < -sizes.steepest) & (np.abs(sdf[:, 0]) < sizes.reach) & np.isfinite(slope) & is_chosen
        for ray, (begin, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
            total = weights[begin:end].sum()
            if np.isfinite(total) and total > sizes.opacity:
                at = begin + int(weights[begin:end].argmax())
                found[ray] = at if is_near[at] else -1
    return found


def _native(
    sdf: Var, gradient: Var, weights: Var, places: Var, directions: Var, offsets: Var, sizes: Hits
) -> SurfaceHits:
    """One operation each way."""
    hits = _SurfaceHits([weights, places, directions], offsets, sizes)
    points, normals = hits(sdf, gradient)
    return SurfaceHits(hits.at, points, normals)


class _SurfaceHits(jt.Function):
    """Keeps its inputs, and which samples they are."""

    def __init__(self, given: list[Var], offsets: Var, sizes: Hits) -> None:
        super().__init__()
        self.given, self.offsets, self.sizes = given, offsets, sizes
        self.fields: list[Var] = []
        self.at: Var | None = None

    def execute(self, sdf: Var, gradient: Var) -> tuple[Var, Var]:
        """Points and normals."""
        self.fields = [sdf, gradient]
        rays = self.offsets.shape[0] - 1
        outputs = [((rays,), "int32"), *shapes32((rays, 3), (rays, 3))]
        inputs = [self.offsets, *self.fields, *self.given]
        self.at, *found = SOURCE.call("surface_hits", self.sizes, outputs, inputs)
        self.at.stop_grad()
        return tuple(found)

    def grad(self, d_points: Var | None, d_normals: Var | None) -> tuple[Var, Var]:
        """Cotangents of distances and gradients."""
        shape = (self.at.shape[0], 3)
        inputs = [self.at, *self.fields, self.given[-1], *filled((d_points, d_normals), [shape, shape])]
        shapes = shapes32(*(value.shape for value in self.fields))
        return tuple(SOURCE.call("surface_hits_backward", self.sizes, shapes, inputs))


surface_hits = Kernel(_reference, cpu=_native, cuda=_native)
