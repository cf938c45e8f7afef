"""The losses of surfels (2DGS, arXiv 2403.17888, section 4.3): pure functions of images [H, W, C]."""

from __future__ import annotations

import numpy as np

from models.machine.backend import jt
from models.ops.splat_raster import DEPTH, FIRST, HIT, NORMAL, OPACITY, SECOND, SURFEL_CHANNELS
from models.structs import Term, Var

THINNEST = 1e-3  # smallest opacity by which depths are divided
SHORTEST = 1e-12  # smallest squared length of a normal


def distortion_term(shown: Var, weight: float) -> Term:
    """Mean over the pixels of sum_ij w_i w_j (m_i - m_j)^2, each pair once; m = 1 / depth of the intersection.

    Depths below `splat_raster.NEAREST_HIT` count as that.
    """
    value = shown[:, :, OPACITY] * shown[:, :, SECOND] - shown[:, :, FIRST].sqr()
    return Term(value.mean(), 1.0, weight)


def facing(shown: Var, camera: np.ndarray) -> Var:
    """Normals [H, W, 3] of the surface given by the depths, camera frame, towards the camera, times the opacity.

    Border pixels are 0. `camera` is `splat_project.camera_numbers`.
    """
    height, width, channels = shown.shape
    opacity = shown[:, :, OPACITY]
    depth = shown[:, :, HIT if channels == SURFEL_CHANNELS else DEPTH] / opacity.maximum(THINNEST)
    fx, skew, cx, fy, cy = (float(value) for value in camera[12:17])
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    up = (y - cy) / fy
    rays = np.stack([(x - cx - skew * up) / fx, up, np.ones_like(x)], axis=-1).astype(np.float32)
    if min(height, width) < 3:
        return jt.zeros((height, width, 3))
    points = depth * jt.array(rays)
    across = points[1:-1, 2:] - points[1:-1, :-2]
    down = points[2:, 1:-1] - points[:-2, 1:-1]
    normal = jt.cross(down, across, dim=-1)
    normal = normal / normal.sqr().sum(dim=-1, keepdims=True).maximum(SHORTEST).sqrt()
    framed = jt.nn.pad(normal, [0, 0, 1, 1, 1, 1])
    return framed * opacity.detach()


def normal_term(shown: Var, camera: np.ndarray, weight: float) -> Term:
    """Mean over the pixels of sum_i w_i (1 - n_i . N), N the normal of the surface given by the depths."""
    agree = (shown[:, :, NORMAL] * facing(shown, camera)).sum(dim=-1, keepdims=True)
    return Term((shown[:, :, OPACITY] - agree).mean(), 1.0, weight)
