"""Images of NeuS that evaluate the networks only where their output is visible. R rays, N intervals inside the sphere.

Rays that hit the object are rendered as in training, to float32 accuracy: the omitted values are multiplied by zero
there.
"""

from __future__ import annotations

import numpy as np

from data.cameras import SPAN_LENGTH
from data.rays import Rays
from models.estimators.base import upload
from models.estimators.hierarchical import HierarchicalEstimator, inside_depths
from models.fields.protocol import ColorField, SurfaceFields
from models.machine.backend import jt
from models.methods.neus import visible
from models.ops import volrend
from models.rendering.kernels import composite, over_background, weights_from_alpha
from models.rendering.render import render_surface
from models.rendering.views import region_view
from models.structs import RayView


def sparing_view(
    fields: SurfaceFields,
    estimator: HierarchicalEstimator,
    rays: Rays,
    cos_anneal_ratio: float,
    background_rgb: np.ndarray | None,
) -> RayView:
    """Render rays; a ray without opaque intervals gets the background colour.

    A full rendering assigns an opacity of 1e-5 to each empty interval of such a ray. With a background network, a ray
    that misses the sphere has no intervals of the object. Without one, its intervals are tested like any other: it is
    empty if it crosses no surface.
    """
    with jt.no_grad():
        seen = np.ones(len(rays), bool) if estimator.nerf is None else visible.meets_sphere(rays)
        sdf = _uniform_distances(fields, estimator, rays.at(seen))
        spacing = SPAN_LENGTH / max(estimator.conf.n_samples - 1, 1)
        opaque = visible.may_be_opaque(rays.at(seen), sdf, spacing, float(fields.sharpness().item()))
        seen[seen] = opaque
        return visible.merged(
            rays,
            seen,
            lambda some: _view_object(fields, estimator, some, sdf[opaque], cos_anneal_ratio, background_rgb),
            lambda some: _view_background(estimator, some, background_rgb),
        )


def _uniform_distances(fields: SurfaceFields, estimator: HierarchicalEstimator, rays: Rays) -> np.ndarray:
    """Signed distances at the uniform depths, [R, n_samples]."""
    count = estimator.conf.n_samples
    if len(rays) == 0:
        return np.empty((0, count), np.float32)
    placed = upload(rays)
    depths = inside_depths(placed.near, placed.far, count, None)
    points = volrend.points_along(placed.origins, placed.directions, depths).reshape((-1, 3))
    return fields.sdf.at_weights().distance(points).reshape(depths.shape).numpy()


def _view_object(
    fields: SurfaceFields,
    estimator: HierarchicalEstimator,
    rays: Rays,
    sdf: np.ndarray,
    cos_anneal_ratio: float,
    background_rgb: np.ndarray | None,
) -> RayView:
    """Render rays that may be opaque; `sdf` is that of `_uniform_distances`."""
    placed, bound = upload(rays), fields.sdf.at_weights()
    color: ColorField = fields.color
    t_starts = estimator.t_starts(placed, bound.distance, None, jt.array(sdf))
    samples = estimator.samples_of(placed, t_starts)
    if estimator.nerf is None:
        geometry = bound.evaluate(samples.positions)
    else:  # with a background, the networks are evaluated only inside the sphere
        rows = visible.Rows.where(visible.may_be_inside(rays, t_starts.numpy(), estimator.last_length))
        geometry, color = visible.distance_at(bound, rows, samples.positions), visible.ColorAt(color, rows)
    rendering = render_surface(color, fields.sharpness(), samples, geometry, cos_anneal_ratio, background_rgb)
    return region_view(rendering, geometry.gradient)


def _view_background(estimator: HierarchicalEstimator, rays: Rays, background_rgb: np.ndarray | None) -> RayView:
    """Render rays without opaque intervals, as if there were no object."""
    placed, samples = upload(rays), None
    if estimator.nerf is not None:
        samples = estimator.samples_of(placed, estimator.t_starts(placed, visible.no_object, None))
    if samples is None or samples.background is None:
        behind = np.zeros(3, np.float32) if background_rgb is None else background_rgb.reshape(3)
        return visible.unseen(np.repeat(behind[None].astype(np.float32), len(rays), axis=0))
    nothing = jt.zeros((samples.positions.shape[0], 3))
    alpha, rgb, offsets = samples.background.joined(nothing[:, :1], nothing)
    weights, opacity = weights_from_alpha(alpha, offsets, is_dense=True)
    return visible.unseen(over_background(composite(weights, rgb, offsets), opacity, background_rgb).numpy())
