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

from data.rays import Rays
from models.backend import jt
from models.config import NerfRendererConfig, TrainConfig
from models.fields.nerf import NeRF
from models.ops.elementwise import softplus
from models.rendering import losses, sampling, volrend
from models.rendering.protocol import SEEN_OPACITY, Placement, SurfaceField
from models.structs import RadianceOutput, RadianceTerms, RayView, StratifiedNoise, Var

# Per working-frame unit: of the light that meets it, a hundredth of the sphere's diameter absorbs 40 %.
SURFACE_DENSITY = 25.0
NORMAL_STEP = 0.01  # working-frame units to either side of a surface, for the slope of the density there
SMALLEST_SLOPE = 1e-12  # to divide by where the density is constant


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
    """Renders rays through the fields; holds no state of its own. A `models.rendering.protocol.Renderer`."""

    def __init__(self, fields: RadianceFields, conf: NerfRendererConfig) -> None:
        self.fields = fields
        self.conf = conf

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """Coarse, then fine: the order in which the published code optimises them."""
        return {"nerf_coarse": self.fields.coarse, "nerf_fine": self.fields.fine}

    @property
    def surface(self) -> SurfaceField:
        """A level set of the fine network's density."""
        return SurfaceField(self._emptiness, SURFACE_DENSITY, "minus the density")

    def sharpness(self) -> None:
        """A density has none."""

    def draw_noise(self, rays: int, generator: np.random.Generator) -> StratifiedNoise | None:
        """A place within its stratum for each coarse depth and each fine quantile."""
        if self.conf.perturb == 0.0:
            return None
        return StratifiedNoise(
            coarse=generator.random((rays, self.conf.n_samples), dtype=np.float32),
            fine=generator.random((rays, self.conf.n_importance), dtype=np.float32),
        )

    def place(self, rays: Rays, noise: StratifiedNoise | None) -> Placement:
        """Nothing: the coarse pass is differentiated, and the fine depths follow from it."""
        del rays, noise
        return Placement(None, 0.0)

    def render(
        self,
        rays: Rays,
        noise: StratifiedNoise | None = None,
        cos_anneal_ratio: float = 1.0,
        background_rgb: np.ndarray | None = None,
        depths: Var | None = None,
    ) -> RadianceOutput:
        """Both passes; see `Renderer.render`. There is no section angle to anneal and no depth to be given."""
        del cos_anneal_ratio, depths
        near, far = self._span(rays)
        borders = sampling.strata(near, far, self.conf.n_samples)
        first = sampling.stratified_depths(borders, None if noise is None else jt.array(noise.coarse)).stop_grad()
        coarse = self._pass(self.fields.coarse, rays, first, far, background_rgb)
        jitter = None if noise is None else jt.array(noise.fine)
        with jt.no_grad():
            closer = sampling.invert_cdf(borders, coarse.weights.detach(), self.conf.n_importance, jitter)
            every = sampling.merge_depths(first, closer)[0].detach()
        fine = self._pass(self.fields.fine, rays, every, far, background_rgb)
        return RadianceOutput(
            rgb=fine.rgb,
            opacity=fine.opacity,
            weights=fine.weights,
            depths=every,
            coarse_rgb=coarse.rgb,
            coarse_opacity=coarse.opacity,
        )

    def loss(
        self,
        output: RadianceOutput,
        target: Var,
        mask: Var,
        conf: TrainConfig,
        counts: losses.BatchCounts | None = None,
    ) -> RadianceTerms:
        """`losses.radiance_loss`."""
        return losses.radiance_loss(output, target, mask, conf, counts)

    def scalars(self, output: RadianceOutput, terms: RadianceTerms, target: Var, mask: Var) -> dict[str, Var]:
        """The losses, the PSNR of both passes and the mean of the largest weight."""
        weight_max = output.weights.max(dim=1, keepdims=True)
        return {
            "Loss/loss": terms.total,
            "Loss/color_loss": terms.fine,
            "Loss/coarse_loss": terms.coarse,
            "Loss/mask_loss": terms.mask,
            "Statistics/weight_max": (weight_max * mask).sum() / (mask.sum() + losses.COUNT_EPS),
            "Statistics/psnr": losses.masked_psnr(output.rgb, target, mask),
            "Statistics/coarse_psnr": losses.masked_psnr(output.coarse_rgb, target, mask),
        }

    def remark(self, scalars: dict[str, float]) -> str:
        """The PSNR of the coarse pass."""
        return f"coarse {scalars['Statistics/coarse_psnr']:.2f}"

    def view(self, rays: Rays, cos_anneal_ratio: float, background_rgb: np.ndarray | None) -> RayView:
        """The fine pass; its normals are those of the density where half of a ray's light is absorbed."""
        with jt.no_grad():
            output = self.render(rays, None, cos_anneal_ratio, background_rgb)
        weights, depths, opacity = (value.numpy() for value in (output.weights, output.depths, output.opacity))
        summed = (weights * depths).sum(axis=1, keepdims=True)
        distance = np.divide(summed, opacity, out=np.zeros_like(summed), where=opacity > SEEN_OPACITY)
        half = np.argmax(np.cumsum(weights, axis=1) >= 0.5 * opacity, axis=1)[:, None]
        normal = self._normals(rays.origins + rays.directions * np.take_along_axis(depths, half, axis=1)) * opacity
        return RayView(output.rgb.numpy(), normal.astype(np.float32), distance, np.clip(opacity, 0.0, 1.0))

    def _span(self, rays: Rays) -> tuple[Var, Var]:
        """Where depths are drawn from, near and far [R, 1]: as the conf says, else the span of the unit sphere.

        That span may begin behind a camera near the sphere; what lies there must not be seen.
        """
        if self.conf.far == 0.0:
            near = np.maximum(rays.near, 0.0)
            return jt.array(near), jt.array(np.maximum(rays.far, near))
        return jt.full((len(rays), 1), self.conf.near), jt.full((len(rays), 1), self.conf.far)

    def _pass(self, network: NeRF, rays: Rays, depths: Var, far: Var, background_rgb: np.ndarray | None) -> _Pass:
        """One network at depths [R, N], each of which begins a section; the last one ends at far [R, 1]."""
        directions = jt.array(rays.directions)
        grid = sampling.points_along(jt.array(rays.origins), directions, depths)
        views = directions.unsqueeze(1).broadcast(grid.shape).reshape((-1, 3)).stop_grad()
        density, rgb = network(grid.reshape((-1, 3)).stop_grad(), views)
        lengths = jt.concat([depths[:, 1:], far], dim=1) - depths
        weights = volrend.weights_from_alpha(volrend.alpha_from_density(density.reshape(depths.shape), lengths))
        opacity = weights.sum(dim=1, keepdims=True)
        color = volrend.composite(weights, rgb.sigmoid().reshape(grid.shape))
        if background_rgb is not None:
            color = color + jt.array(background_rgb.reshape(1, 3).astype(np.float32)) * (1.0 - opacity)
        return _Pass(color, opacity, weights)

    def _raw_density(self, points: np.ndarray) -> Var:
        """The fine network's density [P, 1] before its activation; no view direction has a part in it."""
        with jt.no_grad():
            return self.fields.fine(jt.array(points), jt.zeros((len(points), 3)))[0]

    def _emptiness(self, points: np.ndarray) -> np.ndarray:
        """Minus the density at points [P, 3], [P, 1]."""
        return -softplus(self._raw_density(points)).numpy()

    def _normals(self, points: np.ndarray) -> np.ndarray:
        """Unit normals [P, 3], against the slope of the density, by central differences.

        The slope of the raw output has the same direction and does not vanish where the density does.
        """
        steps = NORMAL_STEP * np.concatenate([np.eye(3), -np.eye(3)])
        around = (points[None] + steps[:, None]).astype(np.float32).reshape(-1, 3)
        raw = self._raw_density(around).numpy().reshape(2, 3, -1)
        slope = (raw[1] - raw[0]).T
        return slope / np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), SMALLEST_SLOPE)
