"""Rasterise Gaussians: the sequence of operations, and the values that images and meshes read from the result."""

from __future__ import annotations

import numpy as np

from data.rays import ImageRays
from models.machine.backend import jt
from models.methods.gaussians.conf import SURFELS, SplatsConfig
from models.methods.gaussians.splats import Splats
from models.methods.gaussians.terms import normals_towards_camera
from models.ops.gaussians import splat_raster as raster
from models.ops.gaussians.splat_project import project_ellipsoids, project_surfels, shade_splats
from models.ops.volrend import SEEN_OPACITY
from models.structs import RayView, Var


def rasterize(
    splats: Splats,
    conf: SplatsConfig,
    numbers: np.ndarray,
    size: tuple[int, int],
    degree: int,
    background: np.ndarray | None,
) -> Var:
    """The image [H, W, C], see `ops.gaussians.splat_raster`.

    Args:
        numbers: of the camera, see `splat_project.camera_numbers`.
        size: width, height.
        degree: of the harmonics.
        background: [3], None for black.
    """
    is_flat, camera = conf.form == SURFELS, jt.array(numbers)
    project = project_surfels if is_flat else project_ellipsoids
    composite = raster.composite_surfels if is_flat else raster.composite_ellipsoids
    seen = project(splats.means, splats.quats, splats.sizes, camera, *size)
    colors = shade_splats(splats.means, splats.dc, splats.rest, camera, degree)
    behind = np.zeros(3) if background is None else background
    look = raster.Look(colors, splats.opacities.sigmoid(), jt.array(np.asarray(behind, np.float32)))
    return composite(seen, look, raster.Raster(*size))


def ray_view(shown: Var, camera: np.ndarray, rays: ImageRays) -> RayView:
    """An image for results. The normals of ellipsoids are those of the surface given by their depths."""
    is_flat = shown.shape[2] == raster.SURFEL_CHANNELS
    opacity = shown[:, :, raster.OPACITY].numpy().reshape(-1, 1)
    normal = (shown[:, :, raster.NORMAL] if is_flat else normals_towards_camera(shown, camera)).numpy().reshape(-1, 3)
    turn = rays.camera.c2w[:3, :3]
    along = rays.directions @ turn[:, 2:].astype(np.float32)
    depth = depth_of(shown)[0].reshape(-1, 1)
    distance = np.divide(depth, along, out=np.zeros_like(depth), where=along > 0)
    rgb = np.clip(shown[:, :, raster.COLOR].numpy().reshape(-1, 3), 0.0, 1.0)
    return RayView(rgb, (normal @ turn.T).astype(np.float32), distance, opacity)


def depth_of(shown: Var) -> tuple[np.ndarray, np.ndarray]:
    """Depth, 0 if nothing is visible, and opacity [H, W] of an image.

    The depth of surfels is the mean over the first part of the accumulated weight: they overlap in a layer, outlines
    and SfM points agree with its outer side, and surfels behind it would increase a mean over all of it.
    """
    opacity = shown[:, :, raster.OPACITY].numpy()[:, :, 0]
    sums, most = shown[:, :, raster.DEPTH], 1.0
    if shown.shape[2] == raster.SURFEL_CHANNELS:
        sums, most = shown[:, :, raster.FRONT], 1.0 - raster.FRONT_LEFT
    depth, taken = sums.numpy()[:, :, 0], np.minimum(opacity, np.float32(most))
    return np.divide(depth, taken, out=np.zeros_like(depth), where=opacity > SEEN_OPACITY), opacity
