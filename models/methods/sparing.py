"""Images: of packed samples, as many rays at a time as fit; and of NeuS, with the networks evaluated only where their
output is visible. R rays, N intervals inside the sphere, P = R N.

Rays that hit the object are rendered as in training, to float32 accuracy: the omitted values are multiplied by zero
there. A training step evaluates the networks of the surface everywhere. A network that is evaluated at some rows
replaces the full one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from data.cameras import SPAN_LENGTH
from data.rays import Rays
from models.estimators.base import upload
from models.estimators.hierarchical import HierarchicalEstimator, inside_depths
from models.fields.protocol import LARGEST_SLOPE, SurfaceFields
from models.machine.backend import jt
from models.ops.volrend import ALPHA_EPS, composite, expected_distance, over_background, points_along, ray_weights
from models.rendering.protocol import SurfaceMethod
from models.rendering.render import render_surface
from models.structs import FieldOutput, RayView, RenderOutput, Var

# A rendering of the first rays, the normals of its samples [S, 3], and the number of these rays
Look = Callable[[Rays], tuple[RenderOutput, Var, int]]


def region_view(rendering: RenderOutput, normals: Var) -> RayView:
    """Colours with background; normals, distance and opacity of the samples in the unit sphere."""
    samples = rendering.samples
    weights = rendering.region_weights
    if samples.in_sphere is not None:
        weights = weights * samples.in_sphere
    values = jt.concat([normals, jt.array(samples.distances), jt.ones_like(weights)], dim=1)
    shown = composite(weights, values, samples.offsets).numpy()
    opacity = shown[:, 4:]
    return RayView(rendering.rgb.numpy(), shown[:, :3], expected_distance(shown[:, 3:4], opacity), opacity)


def packed_view(rays: Rays, look: Look, behind: np.ndarray | None) -> RayView:
    """Render R rays, as many at a time as `look` does; rays without samples show the background."""
    count, start = len(rays), 0
    whole = RayView(*(np.zeros((count, width), np.float32) for width in (3, 3, 1, 1)))
    whole.rgb[:] = 0.0 if behind is None else behind
    while start < count:
        with jt.no_grad():
            rendering, normals, traversed = look(rays.at(slice(start, count)))
            view = region_view(rendering, normals)
        for name, part in vars(view).items():
            getattr(whole, name)[start : start + traversed] = part[:traversed]
        start += max(traversed, 1)
    return whole


# An interval that ends this many 1 / inv_s in front of the surface has an opacity below ALPHA_EPS, that of an empty
# one.
NEGLIGIBLE = -float(np.log(ALPHA_EPS))
# Relative rounding error of float32 points, with respect to the larger of the sphere's radius and the camera's
# distance.
ROUNDING = 1e-5
EMPTY_SDF = 10.0  # a signed distance in a region without an object, larger than the region


def meets_sphere(rays: Rays) -> np.ndarray:
    """Whether the line of each ray crosses the unit sphere, to float32 accuracy: bool [R]."""
    origins, directions = rays.origins.astype(np.float64), rays.directions.astype(np.float64)
    nearest = np.linalg.norm(np.cross(origins, directions), axis=1) / np.linalg.norm(directions, axis=1)
    return nearest < 1.0 + _slack(rays)


def may_be_inside(rays: Rays, t_starts: np.ndarray, last: float) -> np.ndarray:
    """Whether each interval may be inside the unit sphere, to float32 accuracy: bool [R, N].

    t_starts: the starts [R, N]; `last` is the length of the last interval.
    """
    lengths = np.diff(t_starts, axis=1, append=t_starts[:, -1:] + last)
    middles = rays.origins[:, None] + rays.directions[:, None] * (t_starts + 0.5 * lengths)[..., None]
    return np.linalg.norm(middles, axis=2) < 1.0 + _slack(rays)[:, None]


def _slack(rays: Rays) -> np.ndarray:
    """The uncertainty of the radius of a point on each ray, [R]."""
    return ROUNDING * np.maximum(1.0, np.linalg.norm(rays.origins, axis=1))


@dataclass(frozen=True)
class Rows:
    """A subset of P rows, with index Vars that all gathers and scatters share."""

    chosen: Var  # [K] int32, ascending
    places: Var  # [P] int32: position of each row in the subset, K for other rows

    @classmethod
    def where(cls, wanted: np.ndarray) -> Rows:
        """The rows with `wanted` true (bool, any shape, P entries); at least one, since Jittor has no [0, C]."""
        flat = wanted.ravel().copy()
        flat[:1] |= not flat.any()
        places = np.where(flat, np.cumsum(flat) - 1, np.count_nonzero(flat))
        return cls(jt.array(np.flatnonzero(flat).astype(np.int32)), jt.array(places.astype(np.int32)))

    def gather(self, values: Var) -> Var:
        """[P, C] -> [K, C]."""
        return values[self.chosen]

    def spread(self, values: Var) -> Var:
        """[K, C] -> [P, C], zero in other rows."""
        return jt.concat([values, jt.zeros((1, values.shape[1]))], dim=0)[self.places]


def merged(
    rays: Rays, chosen: np.ndarray, first: Callable[[Rays], RayView], second: Callable[[Rays], RayView]
) -> RayView:
    """The result of `first` for selected rays (bool [R]) and of `second` for the others; neither is called for zero
    rays.
    """
    parts = [(which, show(rays.at(which))) for which, show in ((chosen, first), (~chosen, second)) if which.any()]
    columns = {name: np.empty((len(rays), array.shape[1]), np.float32) for name, array in vars(parts[0][1]).items()}
    for which, shown in parts:
        for name, array in vars(shown).items():
            columns[name][which] = array
    return RayView(**columns)


def view_without_object(rgb: np.ndarray) -> RayView:
    """The RayView of rays that see no object, from their colours [R, 3]."""
    one = np.zeros((len(rgb), 1), np.float32)
    return RayView(rgb, np.zeros((len(rgb), 3), np.float32), one, one)


def sparing_view(model: SurfaceMethod, estimator: HierarchicalEstimator, rays: Rays, step: int) -> RayView:
    """Render rays; a ray without opaque intervals gets the background colour.

    A full rendering assigns an opacity of 1e-5 to each empty interval of such a ray. With a background network, a ray
    that misses the sphere has no intervals of the object. Without one, its intervals are tested like any other: it is
    empty if it crosses no surface.
    """
    with jt.no_grad():
        seen = np.ones(len(rays), bool) if estimator.nerf is None else meets_sphere(rays)
        sdf = _uniform_distances(model.fields, estimator, rays.at(seen))
        spacing = SPAN_LENGTH / max(estimator.conf.n_samples - 1, 1)
        # No interval of another ray is more opaque than ALPHA_EPS. For a ray that misses the sphere only a zero
        # crossing counts, not the blur around a surface with a small inv_s.
        blur = np.where(meets_sphere(rays.at(seen)), NEGLIGIBLE / model.fields.sharpness().item(), 0.0)
        opaque = sdf.min(axis=1) <= LARGEST_SLOPE * spacing + blur
        seen[seen] = opaque
        return merged(
            rays,
            seen,
            lambda some: _view_object(model, estimator, some, sdf[opaque], step),
            lambda some: _view_background(estimator, some, model.behind),
        )


def _uniform_distances(fields: SurfaceFields, estimator: HierarchicalEstimator, rays: Rays) -> np.ndarray:
    """Signed distances at the uniform depths, [R, n_samples]."""
    count = estimator.conf.n_samples
    if len(rays) == 0:
        return np.empty((0, count), np.float32)
    placed = upload(rays)
    depths = inside_depths(placed.near, placed.far, count, None)
    points = points_along(placed.origins, placed.directions, depths).reshape((-1, 3))
    return fields.sdf.bind().distance(points).reshape(depths.shape).numpy()


def _view_object(
    model: SurfaceMethod, estimator: HierarchicalEstimator, rays: Rays, sdf: np.ndarray, step: int
) -> RayView:
    """Render rays that may be opaque; `sdf` is that of `_uniform_distances`."""
    placed, bound = upload(rays), model.fields.sdf.bind()
    color: Any = model.fields.color
    t_starts = estimator.t_starts(placed, bound.distance, None, jt.array(sdf))
    samples = estimator.samples_of(placed, t_starts)
    if estimator.nerf is None:
        geometry = bound.evaluate(samples.positions)
    else:  # with a background, the networks are evaluated only inside the sphere; their outputs are zero elsewhere
        rows = Rows.where(may_be_inside(rays, t_starts.numpy(), estimator.last_length))
        inside = bound.evaluate(rows.gather(samples.positions))
        geometry = FieldOutput(rows.spread(inside.sdf), inside.feature, rows.spread(inside.gradient))

        def color(points: Var, normals: Var, view_dirs: Var, features: Var) -> Var:
            gather = rows.gather
            return rows.spread(model.fields.color(gather(points), gather(normals), gather(view_dirs), features))

    ratio = model.cos_anneal_ratio(step)
    rendering = render_surface(color, model.fields.sharpness(), samples, geometry, ratio, model.behind)
    return region_view(rendering, geometry.gradient)


def _view_background(estimator: HierarchicalEstimator, rays: Rays, background_rgb: np.ndarray | None) -> RayView:
    """Render rays without opaque intervals, as if there were no object."""
    background = None
    if estimator.nerf is not None:
        placed, no_object = upload(rays), lambda points: jt.full((points.shape[0], 1), EMPTY_SDF)
        samples = estimator.samples_of(placed, estimator.t_starts(placed, no_object, None))
        background = samples.background
    if background is None:
        behind = np.zeros(3, np.float32) if background_rgb is None else background_rgb.reshape(3)
        return view_without_object(np.repeat(behind[None].astype(np.float32), len(rays), axis=0))
    nothing = jt.zeros((samples.positions.shape[0], 3))
    alpha, rgb, offsets = background.joined(nothing[:, :1], nothing)
    weights, opacity = ray_weights(alpha, offsets, is_dense=True)
    return view_without_object(over_background(composite(weights, rgb, offsets), opacity, background_rgb).numpy())
