"""Ellipsoids (3DGS, arXiv 2308.04079) and surfels (2DGS, arXiv 2403.17888) projected to an image, and their colours.

N Gaussians: means [N, 3] in the world frame, quaternions [N, 4] (w, x, y, z, of any length), logarithms of the standard
deviations [N, 3]. A camera is 17 numbers, see `camera_numbers`. Pixel centres are at +0.5. All are differentiable
once, with respect to the Gaussians. The constants are those of gsplat 1.x, which implements the published formulas in
PyTorch. A colour is max(0, sum_k Y_k(direction from the camera) c_k + 0.5), with real spherical harmonics up to degree
3, in the order and with the signs of 3DGS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.machine.backend import jt
from models.ops.gaussians.harmonics import functions
from models.ops.source import Kernel, Source
from models.structs import Var

BLUR = 0.3  # added to the variances in the image, in square pixels, so that no ellipsoid falls between pixels
REACH = 3.33  # standard deviations at which an opaque Gaussian falls below 1 / 255
FARTHEST_REACH = 1e6  # largest radius in pixels
# in half images: outside this margin the Jacobian of an ellipsoid is evaluated at the margin, to keep it bounded
MARGIN = 0.3
NEAR = 0.01  # near plane
LEAST_EXTENT = 1e-4  # minimum extent of a surfel's bounding box, in square pixels
SHORTEST = 1e-24  # smallest squared length of a quaternion
MINORS = ((1, 2), (2, 0), (0, 1))  # columns of each 2 x 2 minor of a 2 x 3 matrix


@dataclass(frozen=True)
class Projection:
    """The sizes and constants that reference and native source share."""

    width: int
    height: int
    near: float = NEAR


@dataclass(frozen=True)
class Ellipsoids:
    """Projected ellipsoids."""

    means2d: Var  # [N, 2] pixels
    depths: Var  # [N, 1] of the centres
    conics: Var  # [N, 3]: a, b, c of (a x^2 + c y^2) / 2 + b x y
    radii: Var  # int32 [N, 2] pixels; 0, 0 if invisible


@dataclass(frozen=True)
class Surfels:
    """Projected surfels."""

    means2d: Var  # [N, 2], centre of the projected bounding box
    depths: Var  # [N, 1] of the centres
    to_picture: Var  # [N, 3, 3], (u, v, 1) of the surfel in standard deviations -> homogeneous pixels
    normals: Var  # [N, 3] unit, camera frame, towards the camera
    radii: Var  # int32 [N, 2]


_SIZES = {"REACH": REACH, "FARTHEST_REACH": FARTHEST_REACH, "LEAST_EXTENT": LEAST_EXTENT, "SHORTEST": SHORTEST}
SOURCE = Source.of("splat_project.h", Projection, BLUR=BLUR, MARGIN=MARGIN, **_SIZES)


def camera_numbers(world_to_camera: np.ndarray, intrinsics: np.ndarray) -> np.ndarray:
    """float32 [17] of a pose [4, 4] and intrinsics [3, 3]: rotation by rows, translation, fx, skew, cx, fy, cy."""
    pose, k = np.asarray(world_to_camera, np.float64), np.asarray(intrinsics, np.float64)
    k = k / k[2, 2]
    numbers = [*pose[:3, :3].reshape(-1), *pose[:3, 3], k[0, 0], k[0, 1], k[0, 2], k[1, 1], k[1, 2]]
    return np.array(numbers, np.float32)


def rotations(quats: Var) -> Var:
    """Matrices [N, 3, 3] of quaternions [N, 4] of any length."""
    unit = quats / quats.sqr().sum(dim=1, keepdims=True).maximum(SHORTEST).sqrt()
    w, x, y, z = (unit[:, k] for k in range(4))
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]
    rows += [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]
    rows += [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]
    return jt.stack(rows, dim=1).reshape((-1, 3, 3))


def _placed(means: Var, camera: Var) -> tuple[Var, Var, list[Var]]:
    """Rotation [3, 3], means in the camera frame [N, 3], and the intrinsics fx, skew, cx, fy, cy."""
    turn = camera[:9].reshape((3, 3))
    return turn, jt.matmul(means, turn.transpose()) + camera[9:12].reshape((1, 3)), [camera[k] for k in range(12, 17)]


def _turned(turn: Var, matrices: Var) -> Var:
    """A rotation [3, 3] times each of [N, 3, 3]; repeated, since on a GPU both batches must have equal length."""
    return jt.matmul(turn.broadcast(matrices.shape, [0]), matrices)


def _ellipsoids_reference(means: Var, quats: Var, log_sizes: Var, camera: Var, width: int, height: int) -> Ellipsoids:
    """Ellipsoids, projected with the Jacobian at their centres."""
    turn, placed, (fx, skew, cx, fy, cy) = _placed(means, camera)
    x, y, z = placed[:, 0], placed[:, 1], placed[:, 2].maximum(NEAR)
    axes = _turned(turn, rotations(quats) * log_sizes.exp().unsqueeze(1))
    margin_x, margin_y = 0.5 * MARGIN * width / fx, 0.5 * MARGIN * height / fy
    slope_x = (x / z).maximum(-cx / fx - margin_x).minimum((width - cx) / fx + margin_x)
    slope_y = (y / z).maximum(-cy / fy - margin_y).minimum((height - cy) / fy + margin_y)
    none = jt.zeros_like(z)
    rows = [fx / z, skew / z, -(fx * slope_x + skew * slope_y) / z, none, fy / z, -fy * slope_y / z]
    flat = jt.matmul(jt.stack(rows, dim=1).reshape((-1, 2, 3)), axes)
    xx, yy = flat[:, 0].sqr().sum(dim=1) + BLUR, flat[:, 1].sqr().sum(dim=1) + BLUR
    xy = (flat[:, 0] * flat[:, 1]).sum(dim=1)
    minors = jt.stack([flat[:, 0, i] * flat[:, 1, k] - flat[:, 0, k] * flat[:, 1, i] for i, k in MINORS], dim=1)
    # a sum of squares, which does not vanish for a needle
    determinant = minors.sqr().sum(dim=1) + BLUR * (xx + yy - BLUR)
    means2d = jt.stack([(fx * x + skew * y) / z + cx, fy * y / z + cy], dim=1)
    radii = _radii(means2d, jt.stack([xx, yy], dim=1).sqrt(), placed[:, 2:], width, height)
    conics = jt.stack([yy / determinant, -xy / determinant, xx / determinant], dim=1)
    return Ellipsoids(means2d, placed[:, 2:], conics, radii)


def _surfels_reference(means: Var, quats: Var, log_sizes: Var, camera: Var, width: int, height: int) -> Surfels:
    """Surfels, projected exactly as planes; the third size is not used."""
    turn, placed, (fx, skew, cx, fy, cy) = _placed(means, camera)
    seen = _turned(turn, rotations(quats))
    sizes = log_sizes[:, :2].exp().unsqueeze(1)
    plane = jt.concat([seen[:, :, :2] * sizes, placed.unsqueeze(2)], dim=2)
    rows = [fx * plane[:, 0] + skew * plane[:, 1] + cx * plane[:, 2], fy * plane[:, 1] + cy * plane[:, 2], plane[:, 2]]
    to_picture = jt.stack(rows, dim=1)
    sign = jt.array(np.array([[1, 1, -1]], np.float32))
    divisor = (sign * rows[2].sqr()).sum(dim=1, keepdims=True)
    means2d = jt.concat([(sign * row * rows[2]).sum(dim=1, keepdims=True) / divisor for row in rows[:2]], dim=1)
    square = jt.concat([(sign * row.sqr()).sum(dim=1, keepdims=True) / divisor for row in rows[:2]], dim=1)
    side = 1.0 - 2.0 * ((seen[:, :, 2] * placed).sum(dim=1, keepdims=True) > 0.0).float32()
    extent = (means2d.sqr() - square).maximum(LEAST_EXTENT).sqrt()
    radii = _radii(means2d, extent, placed[:, 2:], width, height)
    return Surfels(means2d, placed[:, 2:], to_picture, seen[:, :, 2] * side.stop_grad(), radii)


def _radii(means2d: Var, extent: Var, depths: Var, width: int, height: int) -> Var:
    """int32 [N, 2] from standard deviations in pixels [N, 2]; 0 outside the image or behind the camera."""
    radii = (extent * REACH).minimum(FARTHEST_REACH).ceil()
    size = jt.array(np.array([[width, height]], np.float32))
    is_inside = jt.logical_and(means2d + radii > 0.0, means2d - radii < size).float32()
    is_seen = is_inside[:, :1] * is_inside[:, 1:] * (depths > NEAR).float32()
    return (radii * is_seen).int32().stop_grad()


def _project(form: str, widths: Sequence[tuple[int, ...]], splats: Sequence[Var], camera: Var, *size: int) -> Any:
    """Both native forms; their gradients need the radii."""
    count = splats[0].shape[0]
    outputs = [*((count, *width) for width in widths), ((count, 2), "int32")]

    def given(inputs: list[Var], outputs: list[Var], cotangents: list[Var]) -> list[Var]:
        return [*inputs, outputs[-1], *cotangents[:-1]]

    inputs = [*splats, camera]
    return SOURCE.differentiable(f"project_{form}", Projection(*size), outputs, inputs, range(len(splats)), given)


def _ellipsoids_native(means: Var, quats: Var, log_sizes: Var, camera: Var, *size: int) -> Ellipsoids:
    return Ellipsoids(*_project("ellipsoids", ((2,), (1,), (3,)), (means, quats, log_sizes), camera, *size))


def _surfels_native(means: Var, quats: Var, log_sizes: Var, camera: Var, *size: int) -> Surfels:
    return Surfels(*_project("surfels", ((2,), (1,), (3, 3), (3,)), (means, quats, log_sizes), camera, *size))


project_ellipsoids = Kernel(_ellipsoids_reference, cpu=_ellipsoids_native, cuda=_ellipsoids_native)
project_surfels = Kernel(_surfels_reference, cpu=_surfels_native, cuda=_surfels_native)


@dataclass(frozen=True)
class Shading:
    """The sizes and constants that reference and native source share."""

    degree: int  # active degree
    rest: int  # number of coefficients beyond the first


SHADE_SOURCE = Source("splat_shade.h", (Shading,), (("SHORTEST", SHORTEST), ("REACH", 1.0), ("FARTHEST_REACH", 1.0)))


def _shade_reference(means: Var, dc: Var, rest: Var, camera: Var, degree: int) -> Var:
    """Colours [N, 3].

    Args:
        dc: [N, 3], coefficients of degree 0.
        rest: [N, K, 3], those of higher degrees; only those up to `degree` are used.
        camera: [17], see `splat_project.camera_numbers`.
    """
    turn, shift = camera[:9].reshape((3, 3)), camera[9:12].reshape((3, 1))
    centre = -jt.matmul(turn.transpose(), shift).reshape((1, 3))
    offset = means - centre
    direction = offset / offset.sqr().sum(dim=1, keepdims=True).maximum(SHORTEST).sqrt()
    first, *others = functions(degree, direction)
    total = first * dc + 0.5
    for index, value in enumerate(others):
        total = total + value * rest[:, index]
    return total.maximum(0.0)


def _shade_native(means: Var, dc: Var, rest: Var, camera: Var, degree: int) -> Var:
    inputs, layout = [means, camera, dc, rest], Shading(degree, rest.shape[1])
    return SHADE_SOURCE.differentiable(
        "shade_splats", layout, [dc.shape], inputs, (0, 2, 3), lambda *values: sum(values, [])
    )


shade_splats = Kernel(_shade_reference, cpu=_shade_native, cuda=_shade_native)
