"""Values of rendered rays for images. R rays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from data.rays import Rays
from models.machine.backend import jt
from models.ops.volrend import composite, expected_distance
from models.structs import RayView, RenderOutput, Var

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
