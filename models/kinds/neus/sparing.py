"""NeuS's pictures, with the networks asked only where their answer can be seen.

R rays, N sections inside the sphere, M in all. A picture of the rays that meet the object is what `NeuSRenderer.render`
gives: float32's last digit aside, what is left out is multiplied by zero there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from data.rays import Rays
from models.kinds.neus import visible
from models.kinds.neus.outputs import ray_view
from models.kinds.neus.renderer import Fields, NeuSRenderer
from models.kinds.pixels import RayVars, upload
from models.machine.backend import jt
from models.ops import volrend
from models.rendering import sampling
from models.rendering.sections import over_background
from models.structs import RayView


def sparing_view(
    renderer: NeuSRenderer, rays: Rays, cos_anneal_ratio: float, background_rgb: np.ndarray | None
) -> RayView:
    """What rays show; one on which nothing can be opaque shows the background alone.

    There, a full rendering lends each empty section an opacity of 1e-5. With a background model, a ray that misses the
    sphere meets no section of the object and shows the same. Without one, its sections count like any other: it is
    empty where it passes no surface.
    """
    with jt.no_grad():
        seen = np.ones(len(rays), bool) if renderer.fields.nerf is None else visible.meets_sphere(rays)
        sdf = _even_distances(renderer, rays.at(seen))
        spacing = sampling.REGION_DIAMETER / max(renderer.conf.n_samples - 1, 1)
        opaque = visible.may_be_opaque(rays.at(seen), sdf, spacing, float(renderer.fields.sharpness().item()))
        seen[seen] = opaque
        return visible.merged(
            rays,
            seen,
            lambda some: _view_object(renderer, some, sdf[opaque], cos_anneal_ratio, background_rgb),
            lambda some: _view_background(renderer, some, background_rgb),
        )


def _even_distances(renderer: NeuSRenderer, rays: Rays) -> np.ndarray:
    """Signed distances at the even depths, [R, n_samples]."""
    count = renderer.conf.n_samples
    if len(rays) == 0:
        return np.empty((0, count), np.float32)
    placed = upload(rays)
    depths = sampling.inside_depths(placed.near, placed.far, count, None)
    points = volrend.points_along(placed.origins, placed.directions, depths).reshape((-1, 3))
    return renderer.fields.sdf.at_weights().distance(points).reshape(depths.shape).numpy()


def _view_object(
    renderer: NeuSRenderer, rays: Rays, sdf: np.ndarray, cos_anneal_ratio: float, background_rgb: np.ndarray | None
) -> RayView:
    """Rays that may meet something opaque; `sdf` of `_even_distances`."""
    placed = upload(rays)
    depths = renderer.place(placed, None, jt.array(sdf))
    spared = _asked_where_seen(renderer, rays, depths.numpy())
    return ray_view(spared.render(placed, None, cos_anneal_ratio, background_rgb, depths))


def _asked_where_seen(renderer: NeuSRenderer, rays: Rays, depths: np.ndarray) -> NeuSRenderer:
    """The renderer for rays at depths [R, N]; beside a background, each network is asked on its side alone."""
    fields = renderer.fields
    if fields.nerf is None:
        return renderer
    inside, outside = visible.sections_apart(rays, depths, renderer.last_length)
    within = visible.Rows.where(inside)
    beyond = np.ones((len(rays), renderer.conf.n_outside), bool)
    spared = Fields(
        sdf=visible.DistanceAt(fields.sdf, within),
        color=visible.ColorAt(fields.color, within),
        sharpness=fields.sharpness,
        nerf=visible.NerfAt(fields.nerf, visible.Rows.where(np.concatenate([outside, beyond], axis=1))),
    )
    return NeuSRenderer(spared, renderer.conf)


def _view_background(renderer: NeuSRenderer, rays: Rays, background_rgb: np.ndarray | None) -> RayView:
    """Rays on which nothing is opaque: as if there were no object."""
    if renderer.fields.nerf is None:
        behind = np.zeros(3, np.float32) if background_rgb is None else background_rgb.reshape(3)
        return visible.unseen(np.repeat(behind[None].astype(np.float32), len(rays), axis=0))
    placed: RayVars = upload(rays)
    depths = NeuSRenderer(replace(renderer.fields, sdf=visible.NoObject()), renderer.conf).place(placed, None)
    inside, _ = visible.sections_apart(rays, depths.numpy(), renderer.last_length)
    background = _asked_where_seen(renderer, rays, depths.numpy()).background(placed, depths)
    count = depths.shape[1]
    hidden = background.alpha[:, :count] * jt.array(np.float32(~inside))
    weights = volrend.weights_from_alpha(jt.concat([hidden, background.alpha[:, count:]], dim=1))
    opacity = weights.sum(dim=1, keepdims=True)
    return visible.unseen(over_background(volrend.composite(weights, background.rgb), opacity, background_rgb).numpy())
