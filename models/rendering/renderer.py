"""NeuS's renderer: rays -> sections -> fields -> colours (arXiv 2106.10689, section 3; background of NeRF++).

R rays, N = n_samples + n_importance sections inside the sphere, M = N + n_outside sections in all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.rays import Rays
from models.backend import jt
from models.config import RendererConfig, TrainConfig
from models.fields.color import RenderingNetwork
from models.fields.nerf import NeRF
from models.fields.sdf import SDFNetwork
from models.fields.sharpness import SingleVarianceNetwork
from models.ops.elementwise import hard_clip, length
from models.rendering import losses, sampling, volrend
from models.rendering.protocol import SEEN_OPACITY, Placement, SurfaceField
from models.structs import LossTerms, RayView, RenderOutput, SampleNoise, Var

EIKONAL_RADIUS = 1.2  # the eikonal loss reaches a little beyond the region of interest, so that its rim is regular


@dataclass(frozen=True)
class Fields:
    """The networks that are trained together; `nerf` is None where there is no background model."""

    sdf: SDFNetwork
    color: RenderingNetwork
    sharpness: SingleVarianceNetwork
    nerf: NeRF | None


@dataclass(frozen=True)
class _Background:
    """What lies at each section according to the background model."""

    alpha: Var  # [R, M]
    rgb: Var  # [R, M, 3]


class NeuSRenderer:
    """Renders rays through the fields; holds no state of its own."""

    def __init__(self, fields: Fields, conf: RendererConfig) -> None:
        self.fields = fields
        self.conf = conf

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The networks under their published names, in the published order."""
        networks = {"nerf": self.fields.nerf} if self.fields.nerf is not None else {}
        return networks | {
            "sdf_network_fine": self.fields.sdf,
            "variance_network_fine": self.fields.sharpness,
            "color_network_fine": self.fields.color,
        }

    @property
    def surface(self) -> SurfaceField:
        """The zero set of the signed distance."""
        return SurfaceField(self._distances, 0.0, "the signed distance")

    def sharpness(self) -> float:
        """inv_s."""
        with jt.no_grad():
            return float(self.fields.sharpness().item())

    def draw_noise(self, rays: int, generator: np.random.Generator) -> SampleNoise | None:
        """A shift for each ray, and a place within its stratum for each depth of the background."""
        if self.conf.perturb == 0.0:
            return None
        return SampleNoise(
            inside=generator.random((rays, 1), dtype=np.float32),
            outside=generator.random((rays, self.conf.n_outside), dtype=np.float32),
        )

    def place(self, rays: Rays, noise: SampleNoise | None) -> Placement:
        """All depths inside the sphere, which takes the up-sampling rounds, and the sections near the sphere."""
        with jt.no_grad():
            depths = self.place_depths(rays, noise)
            near = float(self.near_sphere(rays, depths).sum().item())
            return Placement(depths.numpy(), near)

    def loss(
        self,
        output: RenderOutput,
        target: Var,
        mask: Var,
        conf: TrainConfig,
        counts: losses.BatchCounts | None = None,
    ) -> LossTerms:
        """`losses.training_loss`."""
        return losses.training_loss(output, target, mask, conf, counts)

    def scalars(self, output: RenderOutput, terms: LossTerms, target: Var, mask: Var) -> dict[str, Var]:
        """The published TensorBoard scalars."""
        weight_max = output.weights.max(dim=1, keepdims=True)
        count = mask.sum() + losses.COUNT_EPS
        return {
            "Loss/loss": terms.total,
            "Loss/color_loss": terms.color,
            "Loss/eikonal_loss": terms.eikonal,
            "Loss/mask_loss": terms.mask,
            "Statistics/s_val": 1.0 / output.inv_s,
            "Statistics/cdf": (output.cdf[:, :1] * mask).sum() / count,
            "Statistics/weight_max": (weight_max * mask).sum() / count,
            "Statistics/psnr": losses.masked_psnr(output.rgb, target, mask),
        }

    def remark(self, scalars: dict[str, float]) -> str:
        """The sharpness."""
        return f"inv_s {1.0 / scalars['Statistics/s_val']:.1f}"

    def view(self, rays: Rays, cos_anneal_ratio: float, background_rgb: np.ndarray | None) -> RayView:
        """Colours, background included; normal, distance and opacity of what lies inside the sphere."""
        with jt.no_grad():
            return ray_view(self.render(rays, None, cos_anneal_ratio, background_rgb))

    def _distances(self, points: np.ndarray) -> np.ndarray:
        """Signed distances [P, 1]."""
        with jt.no_grad():
            return self.fields.sdf.sdf(jt.array(points)).numpy()

    def render(
        self,
        rays: Rays,
        noise: SampleNoise | None = None,
        cos_anneal_ratio: float = 1.0,
        background_rgb: np.ndarray | None = None,
        depths: Var | None = None,
    ) -> RenderOutput:
        """Colours and all that the losses need.

        Args:
            rays: R rays in the working frame.
            noise: jitter of the depths; None renders deterministically.
            cos_anneal_ratio: see `volrend.annealed_cos`.
            background_rgb: [3], the colour behind everything; None for black.
            depths: [R, N] from `place_depths`, where that has been done; None to do it now.
        """
        origins, directions = jt.array(rays.origins), jt.array(rays.directions)
        with jt.no_grad():
            depths = (self.place_depths(rays, noise) if depths is None else depths).detach()
            outside = self._place_outside(rays, noise)
        background = None if outside is None else self._background(origins, directions, depths, outside)
        return self._render_sections(origins, directions, depths, background, cos_anneal_ratio, background_rgb)

    def place_depths(self, rays: Rays, noise: SampleNoise | None, sdf: Var | None = None) -> Var:
        """Depths of the sections inside the sphere, [R, N] ascending: even ones, then rounds nearer the surface.

        sdf: signed distances at the even ones, [R, n_samples], where they are known already.
        """
        *_, depths = self.up_sample_rounds(rays, noise, sdf)
        return depths

    def up_sample_rounds(self, rays: Rays, noise: SampleNoise | None, sdf: Var | None = None) -> list[Var]:
        """The new depths of each round [R, K], then all depths sorted [R, N]; `sdf` as for `place_depths`."""
        origins, directions = jt.array(rays.origins), jt.array(rays.directions)
        jitter = None if noise is None else jt.array(noise.inside)
        depths = sampling.inside_depths(jt.array(rays.near), jt.array(rays.far), self.conf.n_samples, jitter)
        counts = sampling.round_counts(self.conf.n_importance, self.conf.up_sample_steps)
        added: list[Var] = []
        if counts and sdf is None:
            sdf = self._sdf_along(origins, directions, depths)
        for index, count in enumerate(counts):
            if count == 0:
                continue
            inv_s = sampling.FIRST_INV_S * 2**index
            new, depths, order = sampling.upsample(origins, directions, depths, sdf, inv_s, count)
            added.append(new)
            if index + 1 < len(counts):
                sdf = jt.concat([sdf, self._sdf_along(origins, directions, new)], dim=1).gather(1, order)
        return [*added, depths]

    def _place_outside(self, rays: Rays, noise: SampleNoise | None) -> Var | None:
        """Depths beyond the sphere, [R, n_outside]; None without a background model."""
        if self.conf.n_outside == 0:
            return None
        jitter = None if noise is None else jt.array(noise.outside)
        return sampling.outside_depths(jt.array(rays.far), self.conf.n_outside, self.conf.n_samples, jitter)

    def near_sphere(self, rays: Rays, depths: Var) -> Var:
        """1 for the sections that the eikonal loss looks at, as `RenderOutput.near_sphere`; depths [R, N]."""
        midpoints = depths + sampling.section_lengths(depths, self._last_length()) * 0.5
        grid = sampling.points_along(jt.array(rays.origins), jt.array(rays.directions), midpoints)
        return (length(grid) < EIKONAL_RADIUS).float32()

    def _last_length(self) -> float:
        """Length given to a ray's last section: an even section's, with the sphere's diameter for near to far."""
        return sampling.REGION_DIAMETER / self.conf.n_samples

    def _sdf_along(self, origins: Var, directions: Var, depths: Var) -> Var:
        """Signed distances at depths, [R, K]."""
        points = sampling.points_along(origins, directions, depths).reshape((-1, 3))
        return self.fields.sdf.sdf(points).reshape(depths.shape)

    def _background(self, origins: Var, directions: Var, depths: Var, outside: Var) -> _Background:
        """The background model at all sections, inside ones included: they count where they leave the sphere."""
        depths, _ = sampling.merge_depths(depths, outside)
        rows, count = depths.shape
        lengths = sampling.section_lengths(depths, self._last_length())
        points = sampling.points_along(origins, directions, depths + lengths * 0.5)
        views = directions.unsqueeze(1).broadcast(points.shape).reshape((-1, 3))
        density, rgb = self.fields.nerf(volrend.inverted_sphere(points).reshape((-1, 4)), views)
        alpha = volrend.alpha_from_density(density.reshape((rows, count)), lengths)
        return _Background(alpha, rgb.sigmoid().reshape((rows, count, 3)))

    def _render_sections(
        self,
        origins: Var,
        directions: Var,
        depths: Var,
        background: _Background | None,
        cos_anneal_ratio: float,
        background_rgb: np.ndarray | None,
    ) -> RenderOutput:
        """Fields at the section middles, opacities, weights and sums."""
        rows, count = depths.shape
        lengths = sampling.section_lengths(depths, self._last_length())
        midpoints = depths + lengths * 0.5
        grid = sampling.points_along(origins, directions, midpoints).stop_grad()
        points = grid.reshape((-1, 3))
        views = directions.unsqueeze(1).broadcast(grid.shape).reshape((-1, 3)).stop_grad()
        field = self.fields.sdf(points)
        rgb = self.fields.color(points, field.gradient, views, field.feature).reshape((rows, count, 3))
        inv_s = self.fields.sharpness()
        slope = volrend.annealed_cos((views * field.gradient).sum(dim=1), cos_anneal_ratio).reshape((rows, count))
        entry_cdf, exit_cdf = volrend.section_cdfs(field.sdf.reshape((rows, count)), slope, lengths, inv_s)
        alpha = hard_clip(volrend.alpha_from_cdfs(entry_cdf, exit_cdf), 0.0, 1.0)
        radius = length(grid)
        inside = (radius < 1.0).float32().stop_grad()
        if background is not None:
            alpha, rgb = _join_background(alpha, rgb, inside, background)
        weights = volrend.weights_from_alpha(alpha)
        opacity = weights.sum(dim=1, keepdims=True)
        color = volrend.composite(weights, rgb)
        if background_rgb is not None:
            color = color + jt.array(background_rgb.reshape(1, 3).astype(np.float32)) * (1.0 - opacity)
        return RenderOutput(
            rgb=color,
            opacity=opacity,
            weights=weights,
            depths=depths,
            midpoints=midpoints,
            sdf_gradient=field.gradient.reshape((rows, count, 3)),
            cdf=entry_cdf,
            inside_sphere=inside,
            near_sphere=(radius < EIKONAL_RADIUS).float32().stop_grad(),
            inv_s=inv_s,
        )


def ray_view(output: RenderOutput) -> RayView:
    """What a rendering without gradients shows."""
    weights = output.weights.numpy()[:, : output.depths.shape[1]] * output.inside_sphere.numpy()
    opacity = weights.sum(axis=1, keepdims=True)
    normal = np.einsum("rn,rnc->rc", weights, output.sdf_gradient.numpy())
    summed = (weights * output.midpoints.numpy()).sum(axis=1, keepdims=True)
    distance = np.divide(summed, opacity, out=np.zeros_like(summed), where=opacity > SEEN_OPACITY)
    return RayView(output.rgb.numpy(), *(array.astype(np.float32) for array in (normal, distance, opacity)))


def _join_background(alpha: Var, rgb: Var, inside: Var, background: _Background) -> tuple[Var, Var]:
    """Sections of the object where they lie in the sphere, of the background elsewhere: [R, N] and M more -> [R, M]."""
    count, outside = alpha.shape[1], 1.0 - inside
    alpha = jt.concat([alpha * inside + background.alpha[:, :count] * outside, background.alpha[:, count:]], dim=1)
    inside, outside = inside.unsqueeze(2), outside.unsqueeze(2)
    rgb = jt.concat([rgb * inside + background.rgb[:, :count] * outside, background.rgb[:, count:]], dim=1)
    return alpha, rgb
