"""Colours of Gaussians as seen from a camera: real spherical harmonics of the direction, up to degree 3.

N Gaussians; colour = max(0, sum_k Y_k(direction from the camera) c_k + 0.5), with the order and the signs of 3D
Gaussian Splatting (arXiv 2308.04079). Differentiable once.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.harmonics import functions
from models.ops.kernel import Kernel
from models.ops.native import differentiable
from models.ops.network import shapes32
from models.ops.source import Source
from models.ops.splat_project import SHORTEST
from models.structs import Var


@dataclass(frozen=True)
class Shading:
    """The sizes and constants that reference and native source share."""

    degree: int  # active degree
    rest: int  # number of coefficients beyond the first


SOURCE = Source("splat_shade.h", (Shading,), (("SHORTEST", SHORTEST), ("REACH", 1.0), ("FARTHEST_REACH", 1.0)))


def _reference(means: Var, dc: Var, rest: Var, camera: Var, degree: int) -> Var:
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


def _native(means: Var, dc: Var, rest: Var, camera: Var, degree: int) -> Var:
    inputs, layout = [means, camera, dc, rest], Shading(degree, rest.shape[1])
    return differentiable(
        SOURCE, "shade_splats", layout, shapes32(dc.shape), inputs, (0, 2, 3), lambda *values: sum(values, [])
    )


shade_splats = Kernel(_reference, cpu=_native, cuda=_native)
