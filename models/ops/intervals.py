"""Dense intervals along rays: each begins at a depth and ends at the next one. All constants.

R rays with N intervals, S = R N samples, sorted by ray.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.elementwise import length
from models.ops.source import Kernel, Source
from models.ops.volrend import points_along
from models.structs import Var

SPHERE_RADIUS = 1.0  # radius of the region of interest
EIKONAL_RADIUS = 1.2  # radius of the eikonal loss, slightly larger so that the border is regular


@dataclass(frozen=True)
class IntervalSizes:
    """The sizes and constants that reference and native source share."""

    per_ray: int  # N
    last: float  # length of a ray's last interval, which has no end
    sphere_radius: float = SPHERE_RADIUS
    eikonal_radius: float = EIKONAL_RADIUS


SOURCE = Source("intervals.h", (IntervalSizes,))


def interval_lengths(t_starts: Var, last: float) -> Var:
    """Lengths of the intervals that begin at t_starts, [R, N]; the last interval gets `last`."""
    tail = jt.full((t_starts.shape[0], 1), last, dtype="float32")
    return jt.concat([t_starts[:, 1:] - t_starts[:, :-1], tail], dim=1)


def _reference(origins: Var, directions: Var, t_starts: Var, last: float) -> tuple[Var, ...]:
    """The midpoints of the intervals that begin at t_starts [R, N] along rays [R, 3].

    Returns positions and directions [S, 3]; lengths and distances of the midpoints [S, 1]; 1 or 0 [S, 1] for midpoints
    inside the unit sphere, and inside the larger sphere of the eikonal loss.
    """
    rows, count = t_starts.shape
    deltas = interval_lengths(t_starts, last)
    middles = t_starts + deltas * 0.5
    grid = points_along(origins, directions, middles).stop_grad()
    radius = length(grid).reshape((-1, 1))
    return (
        grid.reshape((-1, 3)),
        directions.unsqueeze(1).broadcast((rows, count, 3)).reshape((-1, 3)).stop_grad(),
        deltas.reshape((-1, 1)),
        middles.reshape((-1, 1)),
        (radius < SPHERE_RADIUS).float32().stop_grad(),
        (radius < EIKONAL_RADIUS).float32().stop_grad(),
    )


def _native(origins: Var, directions: Var, t_starts: Var, last: float) -> tuple[Var, ...]:
    rows, count = t_starts.shape
    outputs = [(rows * count, width) for width in (3, 3, 1, 1, 1, 1)]
    return tuple(SOURCE.detached("intervals", IntervalSizes(count, last), outputs, [origins, directions, t_starts]))


# On the CPU unused values are not computed, and the rest is fused.
intervals = Kernel(_reference, cuda=_native)
