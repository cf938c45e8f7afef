"""What of an image has to be computed: the rays on which something may be opaque, and the visible intervals.

Only images use this; a training step evaluates its networks everywhere. R rays, N intervals inside, M in all, P = R x
intervals. A network that is evaluated at some rows takes the place of the whole one; the caller multiplies the others
by zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from data.rays import Rays
from models.fields.nerf import NeRF
from models.fields.protocol import ColorField, DistanceAtWeights, DistanceField
from models.machine.backend import jt
from models.ops.volrend import ALPHA_EPS
from models.structs import FieldOutput, RayView, Var

# The eikonal loss keeps the signed distance's slope near 1; between two depths it is not believed to exceed this.
STEEPEST = 1.5
# A section whose end lies so many 1 / inv_s before the surface has an opacity below that of an empty one, ALPHA_EPS.
NEGLIGIBLE = -float(np.log(ALPHA_EPS))
# Points are float32: of the larger of the sphere's radius and the camera's distance, what rounding may move them by.
ROUNDING = 1e-5
EMPTY_SDF = 10.0  # a signed distance anywhere in a region without an object; farther than the region is wide


def meets_sphere(rays: Rays) -> np.ndarray:
    """Whether each ray's line passes through the unit sphere, to the accuracy of float32: bool [R]."""
    origins, directions = rays.origins.astype(np.float64), rays.directions.astype(np.float64)
    nearest = np.linalg.norm(np.cross(origins, directions), axis=1) / np.linalg.norm(directions, axis=1)
    return nearest < 1.0 + _slack(rays)


def may_be_opaque(rays: Rays, sdf: np.ndarray, spacing: float, inv_s: float) -> np.ndarray:
    """Whether anything along each ray may have opacity, bool [R]; sdf [R, N] at depths `spacing` apart.

    Where not, no section is more opaque than an empty one, which `volrend` lends ALPHA_EPS. Of a ray that misses the
    sphere only what may be a surface counts, not the blur about one while it is not sharp yet.
    """
    blur = np.where(meets_sphere(rays), NEGLIGIBLE / inv_s, 0.0)
    return sdf.min(axis=1) <= STEEPEST * spacing + blur


def intervals_apart(rays: Rays, t_starts: np.ndarray, last: float) -> tuple[np.ndarray, np.ndarray]:
    """Which intervals [R, N] may lie inside the unit sphere, and which outside: bool; near its rim, both.

    t_starts: where they begin; `last` is the length of the last one.
    """
    lengths = np.diff(t_starts, axis=1, append=t_starts[:, -1:] + last)
    middles = rays.origins[:, None] + rays.directions[:, None] * (t_starts + 0.5 * lengths)[..., None]
    radius, slack = np.linalg.norm(middles, axis=2), _slack(rays)[:, None]
    return radius < 1.0 + slack, radius > 1.0 - slack


def _slack(rays: Rays) -> np.ndarray:
    """By how much the radius of a point on each ray is uncertain, [R]."""
    return ROUNDING * np.maximum(1.0, np.linalg.norm(rays.origins, axis=1))


@dataclass(frozen=True)
class Rows:
    """Some of P rows. Var indices are made once, for all that is gathered and spread."""

    chosen: Var  # [K] int32, ascending
    places: Var  # [P] int32: where each row lies among the chosen ones, K for a row that is not chosen

    @classmethod
    def where(cls, wanted: np.ndarray) -> Rows:
        """The rows at which `wanted` (bool, any shape, P entries) is true; at least one, since Jittor has no [0, C]."""
        flat = wanted.ravel().copy()
        flat[:1] |= not flat.any()
        places = np.where(flat, np.cumsum(flat) - 1, np.count_nonzero(flat))
        return cls(jt.array(np.flatnonzero(flat).astype(np.int32)), jt.array(places.astype(np.int32)))

    def gather(self, values: Var) -> Var:
        """[P, C] -> [K, C]."""
        return values[self.chosen]

    def spread(self, values: Var) -> Var:
        """[K, C] -> [P, C], zero where a row is not chosen."""
        return jt.concat([values, jt.zeros((1, values.shape[1]))], dim=0)[self.places]


@dataclass(frozen=True)
class DistanceAt:
    """A signed-distance field at some rows. Features, which are wide, stay gathered: for `ColorAt` alone."""

    field: DistanceField
    rows: Rows

    def at_weights(self) -> _DistanceAtRows:
        """The field as it is now."""
        return _DistanceAtRows(self.field.at_weights(), self.rows)


@dataclass(frozen=True)
class _DistanceAtRows:
    """The same with the weights it has now."""

    field: DistanceAtWeights
    rows: Rows

    def evaluate(self, points: Var) -> FieldOutput:
        """Signed distance and gradient [P, ...], zero elsewhere; features [K, F]."""
        field = self.field.evaluate(self.rows.gather(points))
        return FieldOutput(self.rows.spread(field.sdf), field.feature, self.rows.spread(field.gradient))


@dataclass(frozen=True)
class ColorAt:
    """A colour field at the rows of a `DistanceAt`."""

    field: ColorField
    rows: Rows

    def __call__(self, points: Var, normals: Var, views: Var, features: Var) -> Var:
        """RGB [P, 3], zero elsewhere; features [K, F] as `DistanceAt` gives them."""
        gathered = (self.rows.gather(values) for values in (points, normals, views))
        return self.rows.spread(self.field(*gathered, features))


@dataclass(frozen=True)
class NerfAt:
    """The background network at some rows."""

    network: NeRF
    rows: Rows

    def __call__(self, points: Var, views: Var) -> tuple[Var, Var]:
        """Raw density [P, 1] and raw RGB [P, 3], zero elsewhere."""
        density, rgb = self.network(self.rows.gather(points), self.rows.gather(views))
        return self.rows.spread(density), self.rows.spread(rgb)


def no_object(points: Var) -> Var:
    """Signed distances [P, 1] of a region without an object at points [P, 3]."""
    return jt.full((points.shape[0], 1), EMPTY_SDF)


def merged(
    rays: Rays, chosen: np.ndarray, first: Callable[[Rays], RayView], second: Callable[[Rays], RayView]
) -> RayView:
    """What rays show: `first` of the chosen ones (bool [R]), `second` of the others; neither is asked of no rays."""
    parts = [(which, show(rays.at(which))) for which, show in ((chosen, first), (~chosen, second)) if which.any()]
    columns = {name: np.empty((len(rays), array.shape[1]), np.float32) for name, array in vars(parts[0][1]).items()}
    for which, shown in parts:
        for name, array in vars(shown).items():
            columns[name][which] = array
    return RayView(**columns)


def unseen(rgb: np.ndarray) -> RayView:
    """Rays [R] that show colours [R, 3] and no object."""
    one = np.zeros((len(rgb), 1), np.float32)
    return RayView(rgb, np.zeros((len(rgb), 3), np.float32), one, one)
