"""The losses of Gaussians: functions of a rendered photograph, in one table; those of surfels are of 2DGS, arXiv
2403.17888, section 4.3. Images are [H, W, C], see `ops.gaussians.splat_raster`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from models.machine.backend import jt
from models.methods.gaussians.batch import Picture
from models.methods.gaussians.conf import SURFELS
from models.ops.gaussians.picture_loss import picture_loss
from models.ops.gaussians.splat_raster import DEPTH, FIRST, HIT, NORMAL, OPACITY, SECOND, SURFEL_CHANNELS
from models.rendering.loss_table import EXPOSURE, MASKS, Loss
from models.rendering.losses import mask_term
from models.structs import MASK_THRESHOLD, Term, Var

THINNEST = 1e-3  # smallest opacity by which depths are divided
SHORTEST = 1e-12  # smallest squared length of a normal
GEOMETRY_FROM = 0.25  # fraction of the training after which the losses of surfels apply


@dataclass(frozen=True)
class RenderedPicture:
    """A photograph and its rendering."""

    picture: Picture
    shown: Var  # [H, W, C]
    rgb: Var  # [H, W, 3], with the exposure of the photograph
    target: Var  # [H, W, 3]
    model: Any  # a `GaussiansModel`


def color(rendered: RenderedPicture) -> Term:
    """L1 and D-SSIM (3DGS, eq. 7)."""
    return Term(picture_loss(rendered.rgb, rendered.target, rendered.model.conf.structure_share), 1.0)


def mask(rendered: RenderedPicture) -> Term | None:
    """Binary cross-entropy of opacities against the mask."""
    values = rendered.picture.mask
    if values is None:
        return None
    shows = jt.array((values > MASK_THRESHOLD).astype(np.float32).reshape(-1, 1))
    return mask_term(rendered.shown[:, :, OPACITY].reshape((-1, 1)), shows)


def distortion(rendered: RenderedPicture) -> Term:
    """Mean over the pixels of sum_ij w_i w_j (m_i - m_j)^2, each pair once; m = 1 / depth of the intersection.

    Depths below `splat_raster.NEAREST_HIT` count as that. Without masks, its pull on foreground and background exceeds
    the colour loss.
    """
    shown = rendered.shown
    value = shown[:, :, OPACITY] * shown[:, :, SECOND] - shown[:, :, FIRST].sqr()
    return Term(value.mean(), 1.0)


def normal(rendered: RenderedPicture) -> Term | None:
    """Mean over the pixels of sum_i w_i (1 - n_i . N), N the normal of the surface given by the depths."""
    shown = rendered.shown
    if min(shown.shape[:2]) <= 2:
        return None
    agree = (shown[:, :, NORMAL] * normals_towards_camera(shown, rendered.picture.camera)).sum(dim=-1, keepdims=True)
    return Term((shown[:, :, OPACITY] - agree).mean(), 1.0)


def opacity(rendered: RenderedPicture) -> Term:
    """Mean opacity (3DGS-MCMC, arXiv 2404.09591, eq. 11)."""
    return Term(rendered.model.splats.opacities.sigmoid().mean(), 1.0)


def size(rendered: RenderedPicture) -> Term:
    """Mean standard deviation (the same)."""
    sizes = rendered.model.splats.sizes
    return Term((sizes[:, :2] if rendered.model.is_flat else sizes).exp().mean(), 1.0)


def exposure(rendered: RenderedPicture) -> Term:
    """Mean square of the difference of exposures from the identity."""
    return Term(rendered.model.exposure.changes().sqr().mean(), 1.0)


LOSSES = {
    "color": Loss(color),
    "mask": Loss(mask, when=MASKS),
    "distortion": Loss(distortion, (SURFELS,), when=MASKS, begins=GEOMETRY_FROM),
    "normal": Loss(normal, (SURFELS,), begins=GEOMETRY_FROM),
    "opacity": Loss(opacity),
    "size": Loss(size),
    "exposure": Loss(exposure, when=EXPOSURE),
}


def normals_towards_camera(shown: Var, camera: np.ndarray) -> Var:
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
