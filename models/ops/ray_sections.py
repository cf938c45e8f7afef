"""The sections of rays: where their middles lie. Each begins at a depth and ends at the next one. All constants.

R rays, N sections, P = R N, ray by ray.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.elementwise import length
from models.ops.kernel import Kernel
from models.ops.network import shapes32
from models.ops.source import Source
from models.ops.volrend import points_along
from models.structs import Var

SPHERE_RADIUS = 1.0  # of the region of interest
EIKONAL_RADIUS = 1.2  # the eikonal loss reaches a little beyond it, so that its rim is regular


@dataclass(frozen=True)
class SectionSizes:
    """The layout."""

    sections: int  # N
    last: float  # length of a ray's last section, which has no end
    sphere_radius: float = SPHERE_RADIUS
    eikonal_radius: float = EIKONAL_RADIUS


@dataclass(frozen=True)
class SectionPlaces:
    """Where the sections lie."""

    lengths: Var  # [R, N]
    midpoints: Var  # [R, N], depths of the middles
    points: Var  # [P, 3], the middles
    views: Var  # [P, 3], the direction of each one's ray
    inside_sphere: Var  # [R, N], 1 where the middle lies in the unit sphere
    near_sphere: Var  # [R, N], 1 where it lies within the slightly larger sphere of the eikonal loss


SOURCE = Source("ray_sections.h", (SectionSizes,))


def section_lengths(depths: Var, last: float) -> Var:
    """Lengths of the sections that begin at depths, [R, N]; the last one, which has no end, gets `last`."""
    tail = jt.full((depths.shape[0], 1), last, dtype="float32")
    return jt.concat([depths[:, 1:] - depths[:, :-1], tail], dim=1)


def _reference(origins: Var, directions: Var, starts: Var, last: float) -> SectionPlaces:
    """The sections that begin at `starts` [R, N] along rays [R, 3]."""
    rows, count = starts.shape
    lengths = section_lengths(starts, last)
    midpoints = starts + lengths * 0.5
    grid = points_along(origins, directions, midpoints).stop_grad()
    radius = length(grid)
    return SectionPlaces(
        lengths,
        midpoints,
        grid.reshape((-1, 3)),
        directions.unsqueeze(1).broadcast((rows, count, 3)).reshape((-1, 3)).stop_grad(),
        (radius < SPHERE_RADIUS).float32().stop_grad(),
        (radius < EIKONAL_RADIUS).float32().stop_grad(),
    )


def _native(origins: Var, directions: Var, starts: Var, last: float) -> SectionPlaces:
    """One operation."""
    rows, count = starts.shape
    flat, points = (rows, count), (rows * count, 3)
    layout = SectionSizes(count, last)
    outputs = shapes32(flat, flat, points, points, flat, flat)
    found = SOURCE.call("ray_sections", layout, outputs, [origins, directions, starts])
    return SectionPlaces(*(value.stop_grad() for value in found))


# On the CPU what is not asked for is not computed, and the rest is fused.
ray_sections = Kernel(_reference, cuda=_native)
