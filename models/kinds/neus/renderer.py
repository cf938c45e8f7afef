"""NeuS's renderer: rays -> sections -> fields -> colours (arXiv 2106.10689, section 3; background of NeRF++).

R rays, N = n_samples + n_importance sections inside the sphere, M = N + n_outside sections in all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.fields.nerf import NeRF
from models.fields.protocol import ColorField, DistanceAtWeights, DistanceField
from models.fields.sharpness import SingleVarianceNetwork
from models.kinds.neus.conf import RendererConfig
from models.kinds.neus.outputs import RenderOutput
from models.kinds.pixels import RayVars
from models.kinds.protocol import Noise
from models.machine.backend import jt
from models.ops import volrend
from models.ops.elementwise import hard_clip, length
from models.ops.upsample import merge_depths, upsample
from models.rendering import sampling
from models.rendering.sections import Sections, over_background, section_lengths
from models.structs import Var

EIKONAL_RADIUS = 1.2  # the eikonal loss reaches a little beyond the region of interest, so that its rim is regular


@dataclass(frozen=True)
class Fields:
    """The networks that are trained together; `nerf` is None where there is no background model."""

    sdf: DistanceField
    color: ColorField
    sharpness: SingleVarianceNetwork
    nerf: NeRF | None


@dataclass(frozen=True)
class Background:
    """What lies at each section according to the background model."""

    alpha: Var  # [R, M]
    rgb: Var  # [R, M, 3]


class NeuSRenderer:
    """Renders rays through the fields; holds no state of its own."""

    def __init__(self, fields: Fields, conf: RendererConfig) -> None:
        self.fields = fields
        self.conf = conf

    def render(
        self,
        rays: RayVars,
        noise: Noise | None = None,
        cos_anneal_ratio: float = 1.0,
        background_rgb: np.ndarray | None = None,
        depths: Var | None = None,
    ) -> RenderOutput:
        """Colours and all that the losses need.

        Args:
            rays: R rays in the working frame.
            noise: jitter of the depths, `inside` [R, 1] and `outside` [R, n_outside]; None renders deterministically.
            cos_anneal_ratio: see `volrend.annealed_cos`.
            background_rgb: [3], the colour behind everything; None for black.
            depths: [R, N] from `place`, where that has been done; None to do it now.
        """
        surface = self.fields.sdf.at_weights()
        with jt.no_grad():
            starts = (self.up_sample_rounds(surface, rays, noise)[-1] if depths is None else depths).detach()
        background = self.background(rays, starts, noise) if self.conf.n_outside > 0 else None
        sections = self._sections(rays, starts)
        midpoints = sections.middles
        grid, views = sections.points(midpoints), sections.views()
        points = grid.reshape((-1, 3))
        field = surface.evaluate(points)
        rgb = self.fields.color(points, field.gradient, views, field.feature).reshape(grid.shape)
        inv_s = self.fields.sharpness()
        slope = volrend.annealed_cos((views * field.gradient).sum(dim=1), cos_anneal_ratio).reshape(starts.shape)
        entry_cdf, exit_cdf = volrend.section_cdfs(field.sdf.reshape(starts.shape), slope, sections.lengths, inv_s)
        alpha = hard_clip(volrend.alpha_from_cdfs(entry_cdf, exit_cdf), 0.0, 1.0)
        radius = length(grid)
        inside = (radius < 1.0).float32().stop_grad()
        if background is not None:
            alpha, rgb = _join_background(alpha, rgb, inside, background)
        weights = volrend.weights_from_alpha(alpha)
        opacity = weights.sum(dim=1, keepdims=True)
        return RenderOutput(
            rgb=over_background(volrend.composite(weights, rgb), opacity, background_rgb),
            opacity=opacity,
            weights=weights,
            depths=starts,
            midpoints=midpoints,
            sdf_gradient=field.gradient.reshape(grid.shape),
            cdf=entry_cdf,
            inside_sphere=inside,
            near_sphere=(radius < EIKONAL_RADIUS).float32().stop_grad(),
            inv_s=inv_s,
        )

    def place(self, rays: RayVars, noise: Noise | None, sdf: Var | None = None) -> Var:
        """Depths of the sections inside the sphere, [R, N] ascending: even ones, then rounds nearer the surface.

        sdf: signed distances at the even ones, [R, n_samples], where they are known already.
        """
        with jt.no_grad():
            return self.up_sample_rounds(self.fields.sdf.at_weights(), rays, noise, sdf)[-1].detach()

    def up_sample_rounds(
        self, surface: DistanceAtWeights, rays: RayVars, noise: Noise | None, sdf: Var | None = None
    ) -> list[Var]:
        """The new depths of each round [R, K], then all depths sorted [R, N]; `sdf` as for `place`."""
        jitter = None if noise is None else jt.array(noise["inside"])
        depths = sampling.inside_depths(rays.near, rays.far, self.conf.n_samples, jitter)
        counts = sampling.round_counts(self.conf.n_importance, self.conf.up_sample_steps)
        added: list[Var] = []
        unknown = depths if sdf is None else None  # where the distances are still to be asked for
        order: Var | None = None  # that of the depths, new ones last, in which they ascend
        for index, count in enumerate(counts):
            if count == 0:
                continue
            if unknown is not None:
                points = volrend.points_along(rays.origins, rays.directions, unknown).reshape((-1, 3))
                found = surface.distance(points).reshape(unknown.shape)
                sdf = jt.concat([sdf, found], dim=1).gather(1, order) if order is not None else found
            inv_s = sampling.FIRST_INV_S * 2**index
            unknown, depths, order = upsample(rays.origins, rays.directions, depths, sdf, inv_s, count)
            added.append(unknown)
        return [*added, depths]

    @property
    def last_length(self) -> float:
        """Length given to a ray's last section: an even section's, with the sphere's diameter for near to far."""
        return sampling.REGION_DIAMETER / self.conf.n_samples

    def _sections(self, rays: RayVars, starts: Var) -> Sections:
        """Sections that begin at `starts`, [R, N]."""
        lengths = section_lengths(starts, self.last_length)
        return Sections(starts, lengths, rays.origins, rays.directions)

    def background(self, rays: RayVars, depths: Var, noise: Noise | None = None) -> Background:
        """The background model at all sections, inside ones [R, N] included: they count where they leave the sphere."""
        with jt.no_grad():
            jitter = None if noise is None else jt.array(noise["outside"])
            outside = sampling.outside_depths(rays.far, self.conf.n_outside, self.conf.n_samples, jitter)
        sections = self._sections(rays, merge_depths(depths, outside)[0])
        rows, count = sections.starts.shape
        points = volrend.inverted_sphere(sections.points(sections.middles)).reshape((-1, 4))
        density, rgb = self.fields.nerf(points, sections.views())
        alpha = volrend.alpha_from_density(density.reshape((rows, count)), sections.lengths)
        return Background(alpha, rgb.sigmoid().reshape((rows, count, 3)))


def _join_background(alpha: Var, rgb: Var, inside: Var, background: Background) -> tuple[Var, Var]:
    """Sections of the object where they lie in the sphere, of the background elsewhere: [R, N] and M more -> [R, M]."""
    count, outside = alpha.shape[1], 1.0 - inside
    alpha = jt.concat([alpha * inside + background.alpha[:, :count] * outside, background.alpha[:, count:]], dim=1)
    inside, outside = inside.unsqueeze(2), outside.unsqueeze(2)
    rgb = jt.concat([rgb * inside + background.rgb[:, :count] * outside, background.rgb[:, count:]], dim=1)
    return alpha, rgb
