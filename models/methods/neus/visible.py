"""Select what an image needs: rays that may be opaque, and visible intervals.

Only images use this; a training step evaluates the networks of the surface everywhere. R rays, N intervals of each
inside, P = R N. A network that is evaluated at some rows replaces the full one; the caller multiplies the other rows by
zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from data.rays import Rays
from models.fields.protocol import STEEPEST, ColorField, DistanceAtWeights
from models.machine.backend import jt
from models.ops.volrend import ALPHA_EPS
from models.structs import FieldOutput, RayView, Var

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


def may_be_opaque(rays: Rays, sdf: np.ndarray, spacing: float, inv_s: float) -> np.ndarray:
    """Whether any interval of each ray may be opaque, bool [R]; sdf [R, N] at depths `spacing` apart.

    For other rays no interval is more opaque than ALPHA_EPS of `volrend`. For a ray that misses the sphere only a zero
    crossing counts, not the blur around a surface with a small inv_s.
    """
    blur = np.where(meets_sphere(rays), NEGLIGIBLE / inv_s, 0.0)
    return sdf.min(axis=1) <= STEEPEST * spacing + blur


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


def distance_at(field: DistanceAtWeights, rows: Rows, points: Var) -> FieldOutput:
    """Signed distance and gradient [P, ...], zero in other rows. Features, which are wide, stay gathered for `ColorAt`:
    [K, F].
    """
    found = field.evaluate(rows.gather(points))
    return FieldOutput(rows.spread(found.sdf), found.feature, rows.spread(found.gradient))


@dataclass(frozen=True)
class ColorAt:
    """A colour field evaluated at the rows of `distance_at`."""

    field: ColorField
    rows: Rows

    def __call__(self, points: Var, normals: Var, view_dirs: Var, features: Var) -> Var:
        """RGB [P, 3], zero in other rows; features [K, F] of `distance_at`."""
        gather = self.rows.gather
        return self.rows.spread(self.field(gather(points), gather(normals), gather(view_dirs), features))


def no_object(points: Var) -> Var:
    """Signed distances [P, 1] of a region without an object at points [P, 3]."""
    return jt.full((points.shape[0], 1), EMPTY_SDF)


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


def unseen(rgb: np.ndarray) -> RayView:
    """The RayView of rays that see no object, from their colours [R, 3]."""
    one = np.zeros((len(rgb), 1), np.float32)
    return RayView(rgb, np.zeros((len(rgb), 3), np.float32), one, one)
