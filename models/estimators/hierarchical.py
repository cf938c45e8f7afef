"""Hierarchical sampling: uniform depths, then rounds of importance sampling near the surface (NeuS, section 3.3).

arXiv 2106.10689. R rays, N = n_samples + n_importance intervals of each inside the sphere, M = N + n_outside in all;
the background is that of NeRF++ (arXiv 2010.07492).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from data.cameras import SPAN_LENGTH
from data.rays import Rays
from models.estimators.base import Estimator, upload
from models.estimators.conf import HierarchicalConfig
from models.fields.radiance import NeRF
from models.machine.backend import jt
from models.ops.elementwise import softplus
from models.ops.upsample import interval_lengths, intervals, merge_depths, place
from models.ops.volrend import alpha_from_density, dense_offsets, inverted_sphere, points_along
from models.structs import Noise, RaySamples, SampleRequest, Var

# The constants are those of https://github.com/Totoro97/NeuS/blob/6e0a230/models/renderer.py
ROUND_INV_S = 64.0  # inv_s of the first up-sampling round; each further round doubles it
FARTHEST_FRACTION = 1e-3  # inverse distance of the farthest background depth, relative to that of `far`
Distance = Callable[[Var], Var]  # points [P, 3] -> signed distances [P, 1]


@dataclass(frozen=True)
class InverseSphereBackground:
    """The background at the M intervals of R rays, evaluated and used where the midpoint is outside the unit sphere."""

    alpha: Var  # [R, M], 1 - exp(-delta log 2) inside the sphere
    rgb: Var  # [R, M, 3], 0.5 inside the sphere
    in_sphere: Var  # [R, N], 1 if the midpoint of an interval of the region is inside the sphere

    def joined(self, alpha: Var, rgb: Var) -> tuple[Var, Var, Var]:
        """Opacity and colour: of the region inside the sphere, of the background outside; see `BackgroundSamples`."""
        (rows, count), every = self.in_sphere.shape, self.alpha.shape[1]
        inside, outside = self.in_sphere, 1.0 - self.in_sphere
        near = alpha.reshape((rows, count)) * inside + self.alpha[:, :count] * outside
        alpha = jt.concat([near, self.alpha[:, count:]], dim=1).reshape((-1, 1))
        inside, outside = inside.unsqueeze(2), outside.unsqueeze(2)
        near = rgb.reshape((rows, count, 3)) * inside + self.rgb[:, :count] * outside
        rgb = jt.concat([near, self.rgb[:, count:]], dim=1).reshape((-1, 3))
        return alpha, rgb, dense_offsets(rows, every)

    def of_region(self, weights: Var) -> Var:
        """Weights of all intervals [R M, 1] -> weights of the region [R N, 1], zero outside the sphere."""
        count = self.in_sphere.shape[1]
        return (weights.reshape(self.alpha.shape)[:, :count] * self.in_sphere).reshape((-1, 1))


class HierarchicalEstimator(Estimator):
    """Dense samples inside the unit sphere, and a background if there is a network for it."""

    def __init__(self, conf: HierarchicalConfig, nerf: NeRF | None) -> None:
        self.conf, self.nerf = conf, nerf

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The background network, if there is one."""
        return {} if self.nerf is None else {"nerf": self.nerf}

    def draw_noise(self, entries: int, generator: np.random.Generator) -> Noise | None:
        """Uniform numbers in [0, 1): a shift per ray [R, 1], and a jitter per background depth [R, n_outside]; None
        without.
        """
        if self.conf.perturb == 0.0:
            return None
        return {
            "inside": generator.random((entries, 1), dtype=np.float32),
            "outside": generator.random((entries, self.conf.n_outside), dtype=np.float32),
        }

    def precompute(self, request: SampleRequest) -> Var:
        """All t_starts inside the sphere, [R, N], computed now, so that a chunk that is rendered twice samples once."""
        assert request.distance is not None
        t_starts = self.t_starts(upload(request.rays), request.distance, request.noise)
        t_starts.sync()
        return t_starts

    def sample(self, request: SampleRequest) -> RaySamples:
        """Samples near the surface of `request.distance`."""
        rays, t_starts = upload(request.rays), request.precomputed
        if t_starts is None:
            assert request.distance is not None
            t_starts = self.t_starts(rays, request.distance, request.noise)
        return self.samples_of(rays, t_starts, request.noise)

    def samples_of(self, rays: Rays, t_starts: Var, noise: Noise | None = None) -> RaySamples:
        """The samples of the intervals that start at t_starts [R, N]."""
        rows, count = t_starts.shape
        positions, directions, deltas, distances, in_sphere, near_sphere = intervals(
            rays.origins, rays.directions, t_starts, self.last_length
        )
        offsets = dense_offsets(rows, count)
        background = None
        if self.nerf is not None:
            background = self.background(self.nerf, rays, t_starts, in_sphere.reshape((rows, count)), noise)
        return RaySamples(positions, directions, deltas, offsets, distances, count, in_sphere, near_sphere, background)

    def t_starts(self, rays: Rays, distance: Distance, noise: Noise | None, sdf: Var | None = None) -> Var:
        """Starts of the intervals, [R, N] ascending: uniform depths, then rounds of importance sampling near the
        surface.

        sdf: signed distances at the uniform depths, [R, n_samples], if they are known.
        """
        with jt.no_grad():
            jitter = None if noise is None else jt.array(noise["inside"])
            depths = inside_depths(rays.near, rays.far, self.conf.n_samples, jitter)
            counts = round_counts(self.conf.n_importance, self.conf.up_sample_steps)
            return place(rays.origins, rays.directions, depths, sdf, distance, counts, ROUND_INV_S).detach()

    @property
    def last_length(self) -> float:
        """Length of the last interval of a ray: that of a uniform interval over the diameter of the sphere."""
        return SPAN_LENGTH / self.conf.n_samples

    def background(
        self, nerf: NeRF, rays: Rays, t_starts: Var, in_sphere: Var, noise: Noise | None = None
    ) -> InverseSphereBackground:
        """The background network, evaluated at the intervals of the region with `in_sphere` [R, N] = 0 and at those
        behind it.
        """
        with jt.no_grad():
            jitter = None if noise is None else jt.array(noise["outside"])
            outside = outside_depths(rays.far, self.conf.n_outside, self.conf.n_samples, jitter)
        t_starts = merge_depths(t_starts, outside)[0]
        rows, count = t_starts.shape
        deltas = interval_lengths(t_starts, self.last_length)
        positions = points_along(rays.origins, rays.directions, t_starts + deltas * 0.5).stop_grad()
        directions = rays.directions.unsqueeze(1).broadcast((rows, count, 3)).reshape((-1, 3)).stop_grad()
        unused = jt.concat([in_sphere, jt.zeros((rows, self.conf.n_outside))], dim=1)
        selected = (unused < 0.5).reshape((-1,)).stop_grad()
        raw, rgb = nerf(inverted_sphere(positions).reshape((-1, 4)), directions, selected)
        alpha = alpha_from_density(softplus(raw).reshape((rows, count)), deltas)
        return InverseSphereBackground(alpha, rgb.sigmoid().reshape((rows, count, 3)), in_sphere)


def inside_depths(near: Var, far: Var, count: int, jitter: Var | None) -> Var:
    """Evenly spaced depths from near to far, [R, 1] -> [R, count].

    Args:
        jitter: [R, 1] uniform in [0, 1), shifts all depths of a ray by up to half an interval; None for no shift.
    """
    depths = near + (far - near) * jt.array(np.linspace(0.0, 1.0, count, dtype=np.float32)[None, :])
    if jitter is None:
        return depths
    return depths + (jitter - 0.5) * (SPAN_LENGTH / count)


def outside_depths(far: Var, count: int, inside_count: int, jitter: Var | None) -> Var:
    """Depths beyond the sphere, evenly spaced in inverse distance, [R, 1] -> [R, count] (NeRF++, arXiv 2010.07492).

    Args:
        inside_count: `n_samples`; the first depth lies one interval beyond `far`.
        jitter: [R, count] uniform in [0, 1), places each depth within its stratum; None for the strata's own.
    """
    fraction = np.linspace(FARTHEST_FRACTION, 1.0 - 1.0 / (count + 1.0), count, dtype=np.float32)
    if jitter is None:
        placed = jt.array(fraction[None, ::-1].copy())
    else:
        middles = 0.5 * (fraction[1:] + fraction[:-1])
        upper = np.concatenate([middles, fraction[-1:]])
        lower = np.concatenate([fraction[:1], middles])
        stratum = jt.array(np.stack([lower[::-1], (upper - lower)[::-1]]))
        placed = stratum[:1] + stratum[1:] * jitter[:, ::-1]
    return far / placed + 1.0 / inside_count


def round_counts(total: int, rounds: int) -> list[int]:
    """The number of new depths of each up-sampling round; the last, sharpest rounds get the remainder.

    With total < rounds, the first rounds get none.
    """
    if total == 0:
        return []
    base, remainder = divmod(total, rounds)
    return [base + (1 if index >= rounds - remainder else 0) for index in range(rounds)]
