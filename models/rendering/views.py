"""Values of rendered rays for images. R rays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from data.rays import Rays
from models.machine.backend import jt
from models.ops.volrend import expected_distance
from models.rendering.kernels import composite
from models.structs import RaySamples, RayView, RenderOutput, Var

Look = Callable[[RaySamples], tuple[RenderOutput, Var]]  # a rendering, and the normals of its samples [S, 3]


class Viewed(Protocol):
    """An estimator of packed samples."""

    def view_samples(self, rays: Rays) -> tuple[RaySamples, int]:
        """The samples of the first rays, and how many rays these are; those after them have none."""


def region_view(rendering: RenderOutput, normals: Var) -> RayView:
    """Colours with background; normals, distance and opacity of the samples in the unit sphere."""
    samples = rendering.samples
    weights = rendering.region_weights
    if samples.in_sphere is not None:
        weights = weights * samples.in_sphere
    values = jt.concat([normals, jt.array(samples.distances), jt.ones_like(weights)], dim=1)
    shown = composite(weights, values, samples.rays).numpy()
    opacity = shown[:, 4:]
    return RayView(rendering.rgb.numpy(), shown[:, :3], expected_distance(shown[:, 3:4], opacity), opacity)


def packed_view(estimator: Viewed, rays: Rays, look: Look, behind: np.ndarray | None) -> RayView:
    """Render R rays, as many at a time as the estimator packs; rays without samples show the background."""
    count = len(rays)
    rgb, normal = np.zeros((count, 3), np.float32), np.zeros((count, 3), np.float32)
    distance, opacity = np.zeros((count, 1), np.float32), np.zeros((count, 1), np.float32)
    rgb[:] = 0.0 if behind is None else behind
    start = 0
    while start < count:
        with jt.no_grad():
            samples, traversed = estimator.view_samples(rays.at(slice(start, count)))
            view = region_view(*look(samples))
        for whole, part in zip(
            (rgb, normal, distance, opacity), (view.rgb, view.normal, view.distance, view.opacity), strict=True
        ):
            whole[start : start + traversed] = part[:traversed]
        start += max(traversed, 1)
    return RayView(rgb, normal, distance, opacity)
