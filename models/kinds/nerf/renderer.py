"""NeRF's renderer: rays -> a coarse and a fine pass through a radiance field (arXiv 2003.08934, sections 4 and 5).

R rays, N = n_samples depths of the coarse pass, M = N + n_importance of the fine one. As published but for three
things: density is softplus of the network's output instead of its positive part, so that no empty start stays empty
(mip-NeRF, arXiv 2103.13415, appendix); the last section ends at `far` instead of nowhere; and the fine depths follow
the histogram of the coarse weights over the strata that the coarse depths were drawn from, with one draw per quantile
(mip-NeRF, section 3.1), instead of one over the depths' middles with independent draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.fields.nerf import NeRF
from models.kinds.nerf.conf import NerfRendererConfig
from models.kinds.nerf.outputs import RadianceOutput
from models.kinds.pixels import RayVars
from models.kinds.protocol import Noise
from models.machine.backend import jt
from models.ops import volrend
from models.ops.upsample import invert_cdf, merge_depths
from models.rendering import sampling
from models.rendering.sections import Sections, over_background
from models.structs import Var


@dataclass(frozen=True)
class RadianceFields:
    """Two networks of one shape: one tells where to look closer, the other makes the picture."""

    coarse: NeRF
    fine: NeRF


@dataclass(frozen=True)
class _Pass:
    """What one network shows of R rays."""

    rgb: Var  # [R, 3]
    opacity: Var  # [R, 1]
    weights: Var  # [R, N]


class NeRFRenderer:
    """Renders rays through the fields; holds no state of its own."""

    def __init__(self, fields: RadianceFields, conf: NerfRendererConfig) -> None:
        self.fields = fields
        self.conf = conf

    def render(
        self, rays: RayVars, noise: Noise | None = None, background_rgb: np.ndarray | None = None
    ) -> RadianceOutput:
        """Both passes.

        Args:
            rays: R rays in the working frame.
            noise: `coarse` [R, n_samples] and `fine` [R, n_importance]; None renders deterministically.
            background_rgb: [3], the colour behind everything; None for black.
        """
        near, far = self._span(rays)
        borders = sampling.strata(near, far, self.conf.n_samples)
        first = sampling.stratified_depths(borders, None if noise is None else jt.array(noise["coarse"])).stop_grad()
        coarse = self._pass(self.fields.coarse, rays, first, far, background_rgb)
        jitter = None if noise is None else jt.array(noise["fine"])
        with jt.no_grad():
            closer = invert_cdf(borders, coarse.weights.detach(), self.conf.n_importance, jitter)
            every = merge_depths(first, closer)[0].detach()
        fine = self._pass(self.fields.fine, rays, every, far, background_rgb)
        return RadianceOutput(
            rgb=fine.rgb,
            opacity=fine.opacity,
            weights=fine.weights,
            depths=every,
            coarse_rgb=coarse.rgb,
            coarse_opacity=coarse.opacity,
        )

    def _span(self, rays: RayVars) -> tuple[Var, Var]:
        """Where depths are drawn from, near and far [R, 1]: as the conf says, else the span of the unit sphere.

        That span may begin behind a camera near the sphere; what lies there must not be seen.
        """
        if self.conf.far == 0.0:
            near = jt.maximum(rays.near, 0.0)
            return near, jt.maximum(rays.far, near)
        shape = tuple(rays.near.shape)
        return jt.full(shape, self.conf.near), jt.full(shape, self.conf.far)

    def _pass(self, network: NeRF, rays: RayVars, depths: Var, far: Var, background_rgb: np.ndarray | None) -> _Pass:
        """One network at depths [R, N], each of which begins a section; the last one ends at far [R, 1]."""
        lengths = jt.concat([depths[:, 1:], far], dim=1) - depths
        sections = Sections(depths, lengths, rays.origins, rays.directions)
        grid = sections.points(depths)
        density, rgb = network(grid.reshape((-1, 3)).stop_grad(), sections.views())
        weights = volrend.weights_from_alpha(volrend.alpha_from_density(density.reshape(depths.shape), lengths))
        opacity = weights.sum(dim=1, keepdims=True)
        color = volrend.composite(weights, rgb.sigmoid().reshape(grid.shape))
        return _Pass(over_background(color, opacity, background_rgb), opacity, weights)
