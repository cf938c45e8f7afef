"""Multi-view photo-consistency: patches of one image, warped to others by the tangent plane, and correlated.

N patches of side 2 radius + 1 pixels around the projection of a surface point in its reference view. The pixels are
projected to the plane through the point with its normal, and from there to each of K other views. The cost of a pair is
one minus the normalised cross-correlation of the grey values, at most `worst`. The cost of a patch is the mean of its
`best` smallest ones, since the point is hidden in some views. See Geo-NeuS (arXiv 2205.15848, section 3.3) and, for the
selection of the best, Galliani et al., ICCV 2015. A pair that cannot be compared costs `worst`. A patch without a
reference view costs 0 and has no gradient for any point and normal. Grey values are 0..255. Cameras are rows of CAMERA
numbers: the projection [3, 4], the matrix from homogeneous pixels to directions [3, 3], the position [3], width and
height. Differentiable once, with respect to points and normals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.source import Kernel, Source
from models.structs import Var

CAMERA = 26  # numbers per camera
PROJECTION, TO_RAYS, POSITION, SIZE = slice(0, 12), slice(12, 21), slice(21, 24), slice(24, 26)
NOISE = 4.0  # grey levels squared: a smaller variance counts as untextured
GRAZING = 0.1  # cosine between normal and ray below which a surface is not compared


@dataclass(frozen=True)
class Patches:
    """The sizes and constants that reference and native source share."""

    height: int  # row length of the photographs in memory
    width: int
    others: int  # K
    radius: int
    best: int
    worst: float
    noise: float = NOISE
    grazing: float = GRAZING


SOURCE = Source("patches.h", (Patches,), (("CAMERA", CAMERA),))


def _reference(points: Var, normals: Var, views: Var, cameras: Var, images: Var, sizes: Patches) -> Var:
    """Costs [N, 1].

    Args:
        points, normals: [N, 3], working frame; normals of any length, outwards.
        views: int32 [N, 1 + K], the reference view of a patch, then the others; -1 for none.
        cameras: [V, CAMERA].
        images: uint8 [V, H, W].
    """
    rows = np.flatnonzero(views[:, 0].numpy() >= 0).astype(np.int32)
    if not len(rows):
        return jt.zeros((points.shape[0], 1))
    chosen = jt.array(rows)
    costs = _all_costs(points[chosen], normals[chosen], views[chosen], cameras, images, sizes)
    return costs.reindex_reduce("add", [points.shape[0], 1], ["@e0(i0)", "i1"], extras=[chosen])


def _all_costs(points: Var, normals: Var, views: Var, cameras: Var, images: Var, sizes: Patches) -> Var:
    """Costs of patches that all have a reference view."""
    pixels, places, is_whole = _plane(points, normals, cameras[views[:, 0]], sizes)
    grey = _bilinear(images, views[:, 0], pixels)
    costs = []
    for other in range(sizes.others):
        view = views[:, 1 + other]
        known = jt.maximum(view, 0)
        camera = cameras[known]
        there, depths = _seen(places, camera)
        is_shown = jt.logical_and(_within(there, camera), (depths > 0).all(dim=1)[:, 0])
        towards = (normals.detach() * (camera[:, POSITION] - points.detach())).sum(dim=1)
        is_pair = jt.logical_and(jt.logical_and(is_whole, is_shown), jt.logical_and(view >= 0, towards > 0))
        there = jt.ternary(is_pair.unsqueeze(1).unsqueeze(2).broadcast(there.shape), there, jt.zeros_like(there))
        cost = 1.0 - _correlation(grey, _bilinear(images, known, there), sizes.noise)
        worst = jt.full_like(cost, sizes.worst)
        costs.append(jt.ternary(jt.logical_and(is_pair, cost < sizes.worst), cost, worst))
    ranked = jt.stack(costs, dim=1)
    order = jt.array(np.argsort(ranked.numpy(), axis=1, kind="stable")[:, : sizes.best].astype(np.int32))
    rows = jt.arange(points.shape[0]).unsqueeze(1).broadcast(order.shape)
    return ranked[rows, order].mean(dim=1, keepdims=True)


def _plane(points: Var, normals: Var, own: Var, sizes: Patches) -> tuple[Var, Var, Var]:
    """Patches of M pixels around points [N, 3] on planes with normals [N, 3], in views `own` [N, CAMERA].

    Returns their pixels [N, M, 2] and places on the plane [N, M, 3], and whether the whole patch is visible from the
    front, bool [N].
    """
    ticks = jt.arange(-sizes.radius, sizes.radius + 1).float32()
    x, y = ticks.repeat(len(ticks)), ticks.unsqueeze(1).repeat(1, len(ticks)).reshape((-1,))
    centre = _seen(points.detach().unsqueeze(1), own)[0].stop_grad()  # [N, 1, 2]
    pixels = centre + jt.stack([x, y], dim=1).unsqueeze(0)
    rays = _turned(jt.concat([pixels, jt.ones((*pixels.shape[:2], 1))], dim=2), own[:, TO_RAYS].reshape((-1, 3, 3)))
    position = own[:, POSITION]
    away, across = (points - position).unsqueeze(1), normals.unsqueeze(1)
    facing = (across * rays).sum(dim=2, keepdims=True)
    places = position.unsqueeze(1) + rays * ((across * away).sum(dim=2, keepdims=True) / facing)
    lengths = across.sqr().sum(dim=2, keepdims=True).sqrt() * rays.sqr().sum(dim=2, keepdims=True).sqrt()
    is_front = (facing < -sizes.grazing * lengths).all(dim=1)[:, 0]
    return pixels, places, jt.logical_and(is_front, _within(pixels, own))


def _turned(vectors: Var, matrices: Var) -> Var:
    """[N, M, 3] multiplied by [N, 3, 3]."""
    return (matrices.unsqueeze(1) * vectors.unsqueeze(2)).sum(dim=3)


def _seen(points: Var, cameras: Var) -> tuple[Var, Var]:
    """Pixels [N, M, 2] and depths [N, M, 1] of points [N, M, 3]."""
    projection = cameras[:, PROJECTION].reshape((-1, 3, 4))
    projected = _turned(points, projection[:, :, :3]) + projection[:, :, 3].unsqueeze(1)
    depths = projected[:, :, 2:]
    return projected[:, :, :2] / jt.ternary(depths > 0, depths, jt.ones_like(depths)), depths


def _within(pixels: Var, cameras: Var) -> Var:
    """Whether all pixels of each patch are in the image: bool [N]."""
    is_in = jt.logical_and(pixels >= 0, pixels <= (cameras[:, SIZE] - 1.0).unsqueeze(1))
    return is_in.all(dim=2).all(dim=1)


def _bilinear(images: Var, views: Var, pixels: Var) -> Var:
    """Grey values [N, M] at pixels [N, M, 2] of views [N], clamped to the image."""
    _, height, width = images.shape
    x, y = (pixels[:, :, axis].clamp(0.0, end - 1.0) for axis, end in ((0, width), (1, height)))
    left, top = (jt.minimum(value.detach().floor(), end - 2.0) for value, end in ((x, width), (y, height)))
    right, low = x - left, y - top
    view = views.unsqueeze(1).broadcast(x.shape)
    column, row = left.int32(), top.int32()
    corners = [[images[view, row + down, column + across].float32() for across in (0, 1)] for down in (0, 1)]
    above, below = (one * (1.0 - right) + other * right for one, other in corners)
    return above * (1.0 - low) + below * low


def _correlation(one: Var, other: Var, noise: float) -> Var:
    """Normalised cross-correlation [N] of grey values [N, M]."""
    one, other = (value - value.mean(dim=1, keepdims=True) for value in (one, other))
    powers = (one.sqr().mean(dim=1) + noise) * (other.sqr().mean(dim=1) + noise)
    return (one * other).mean(dim=1) / powers.sqrt()


def _native(points: Var, normals: Var, views: Var, cameras: Var, images: Var, sizes: Patches) -> Var:
    """One operation, which computes costs and gradients."""
    shapes = [(points.shape[0], 1), points.shape, normals.shape]
    return SOURCE.with_slopes("patch_costs", sizes, shapes, [points, normals, views, cameras, images])


patch_costs = Kernel(_reference, cpu=_native, cuda=_native)
