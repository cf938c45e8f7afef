"""NeRF's hierarchical sampling: stratified depths, then more of them where the coarse pass has weight.

arXiv 2003.08934, section 5. R rays, N = n_samples depths of the coarse pass, M = N + n_importance of the fine one. As
published but for two things: the last interval ends at `far` instead of nowhere; and the fine depths follow the
histogram of the coarse weights over the strata that the coarse depths were drawn from, with one draw per quantile
(mip-NeRF, arXiv 2103.13415, section 3.1), instead of one over the depths' middles with independent draws.
"""

from __future__ import annotations

import numpy as np

from data.rays import PixelBatch, Rays
from models.estimators import sampling
from models.estimators.conf import CoarseToFineConfig
from models.estimators.pixels import PixelEstimator, RayVars, upload
from models.machine.backend import jt
from models.ops.upsample import invert_cdf, merge_depths
from models.ops.volrend import dense_offsets, points_along
from models.structs import RayLayout, RaySamples, Var

Noise = dict[str, np.ndarray]


class CoarseToFineEstimator(PixelEstimator):
    """Dense samples of two passes."""

    def __init__(self, conf: CoarseToFineConfig) -> None:
        self.conf = conf

    def draw_noise(self, entries: int, generator: np.random.Generator) -> Noise | None:
        """A place within its stratum for each coarse depth and each fine quantile."""
        conf = self.conf
        if conf.perturb == 0.0:
            return None
        return {
            "coarse": generator.random((entries, conf.n_samples), dtype=np.float32),
            "fine": generator.random((entries, conf.n_importance), dtype=np.float32),
        }

    def sample(self, batch: PixelBatch | Rays, noise: Noise | None) -> RaySamples:
        """The samples of the coarse pass, a depth in each stratum; without noise its middle."""
        placed = _uploaded(batch)
        near, far = self._span(placed)
        jitter = None if noise is None else jt.array(noise["coarse"])
        borders = sampling.strata(near, far, self.conf.n_samples)
        return _samples(placed, sampling.stratified_depths(borders, jitter).stop_grad(), far)

    def refine(self, batch: PixelBatch | Rays, coarse: RaySamples, weights: Var, noise: Noise | None) -> RaySamples:
        """The samples of the fine pass: those of the coarse one, and more where it has weights [R N, 1]."""
        placed, count = _uploaded(batch), self.conf.n_samples
        near, far = self._span(placed)
        jitter = None if noise is None else jt.array(noise["fine"])
        with jt.no_grad():
            borders = sampling.strata(near, far, count)
            weights = weights.detach().reshape((-1, count))
            closer = invert_cdf(borders, weights, self.conf.n_importance, jitter)
            depths = merge_depths(coarse.distances.reshape((-1, count)), closer)[0].detach()
        return _samples(placed, depths, far)

    def _span(self, rays: RayVars) -> tuple[Var, Var]:
        """Where depths are drawn from, near and far [R, 1]: as the conf says, else the span of the unit sphere.

        That span may begin behind a camera near the sphere; what lies there must not be seen.
        """
        if self.conf.far == 0.0:
            near = jt.maximum(rays.near, 0.0)
            return near, jt.maximum(rays.far, near)
        shape = tuple(rays.near.shape)
        return jt.full(shape, self.conf.near), jt.full(shape, self.conf.far)


def _uploaded(batch: PixelBatch | Rays) -> RayVars:
    return upload(batch.rays if isinstance(batch, PixelBatch) else batch)


def _samples(rays: RayVars, depths: Var, far: Var) -> RaySamples:
    """A field is evaluated at depths [R, N], each of which begins an interval; the last one ends at far [R, 1]."""
    rows, count = depths.shape
    deltas = jt.concat([depths[:, 1:], far], dim=1) - depths
    positions = points_along(rays.origins, rays.directions, depths).reshape((-1, 3)).stop_grad()
    directions = rays.directions.unsqueeze(1).broadcast((rows, count, 3)).reshape((-1, 3)).stop_grad()
    layout = RayLayout(dense_offsets(rows, count), count)
    return RaySamples(positions, directions, deltas.reshape((-1, 1)), layout, depths.reshape((-1, 1)))
