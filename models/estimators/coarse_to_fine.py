"""NeRF's hierarchical sampling: stratified depths, then importance sampling by the weights of the coarse pass.

arXiv 2003.08934, section 5. R rays, N = n_samples depths of the coarse pass, M = N + n_importance of the fine pass. As
published, with two exceptions. The last interval ends at `far` instead of infinity. The fine depths are drawn from the
histogram of the coarse weights over the strata of the coarse depths, stratified by quantile (mip-NeRF, arXiv
2103.13415, section 3.1); the published code uses the midpoints between the coarse depths and independent draws.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from data.rays import Rays
from models.estimators.base import Estimator, upload
from models.estimators.conf import CoarseToFineConfig
from models.machine.backend import jt
from models.ops.upsample import invert_cdf, merge_depths
from models.ops.volrend import dense_offsets, points_along
from models.structs import Noise, RaySamples, SampleRequest, Var


class CoarseToFineEstimator(Estimator):
    """Dense samples of a coarse and a fine pass."""

    def __init__(self, conf: CoarseToFineConfig) -> None:
        self.conf = conf

    def draw_noise(self, entries: int, generator: np.random.Generator) -> Noise | None:
        """Uniform numbers in [0, 1): one per coarse depth [R, N] and per fine depth [R, n_importance]; None without
        jitter.
        """
        conf = self.conf
        if conf.perturb == 0.0:
            return None
        return {
            "coarse": generator.random((entries, conf.n_samples), dtype=np.float32),
            "fine": generator.random((entries, conf.n_importance), dtype=np.float32),
        }

    def sample(self, request: SampleRequest) -> RaySamples:
        """The samples of the fine pass: the coarse depths, one in each stratum, and n_importance depths that are drawn
        by the weights of the coarse pass. Without noise, the coarse depths are the midpoints of the strata.
        """
        assert request.coarse is not None
        rays, count = upload(request.rays), self.conf.n_samples
        near, far = jt.full_like(rays.near, self.conf.near), jt.full_like(rays.far, self.conf.far)
        if self.conf.far == 0.0:  # the span of the unit sphere, which may begin behind the camera
            near = jt.maximum(rays.near, 0.0)
            far = jt.maximum(rays.far, near)
        jitter = {} if request.noise is None else {name: jt.array(values) for name, values in request.noise.items()}
        shares = jt.array(np.linspace(0.0, 1.0, count + 1, dtype=np.float32)[None, :])
        borders = near + (far - near) * shares  # of equal strata, [R, N + 1] (eq. 2)
        depths = (borders[:, :-1] + (borders[:, 1:] - borders[:, :-1]) * jitter.get("coarse", 0.5)).stop_grad()
        coarse = request.coarse(_samples(rays, depths, far))
        with jt.no_grad():
            weights = coarse.weights.detach().reshape((-1, count))
            closer = invert_cdf(borders, weights, self.conf.n_importance, jitter.get("fine"))
            depths = merge_depths(depths, closer)[0].detach()
        return replace(_samples(rays, depths, far), coarse=coarse)


def _samples(rays: Rays, depths: Var, far: Var) -> RaySamples:
    """Samples at depths [R, N], which are also the starts of the intervals; the last interval ends at far [R, 1]."""
    rows, count = depths.shape
    deltas = jt.concat([depths[:, 1:], far], dim=1) - depths
    positions = points_along(rays.origins, rays.directions, depths).reshape((-1, 3)).stop_grad()
    directions = rays.directions.unsqueeze(1).broadcast((rows, count, 3)).reshape((-1, 3)).stop_grad()
    offsets = dense_offsets(rows, count)
    return RaySamples(positions, directions, deltas.reshape((-1, 1)), offsets, depths.reshape((-1, 1)), count)
