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
from models.ops.placing import place, rounds
from models.ops.ray_sections import ray_sections, section_lengths
from models.ops.shading import composited, shade, surface_alpha
from models.ops.upsample import merge_depths
from models.rendering import sampling
from models.rendering.sections import Sections, over_background
from models.structs import Var


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
            starts = (self._placed(surface, rays, noise) if depths is None else depths).detach()
        background = self.background(rays, starts, noise) if self.conf.n_outside > 0 else None
        places = ray_sections(rays.origins, rays.directions, starts, self.last_length)
        field = surface.evaluate(places.points)
        colors = self.fields.color(places.points, field.gradient, places.views, field.feature)
        inv_s = self.fields.sharpness()
        section = (places.views, places.lengths, inv_s, cos_anneal_ratio)
        if background is None:
            shown = shade(field, colors, *section)
        else:
            alpha, cdf = surface_alpha(field, *section)
            rgb = colors.reshape((*starts.shape, 3))
            shown = composited(*_join_background(alpha, rgb, places.inside_sphere, background), cdf)
        return RenderOutput(
            rgb=over_background(shown.rgb, shown.opacity, background_rgb),
            opacity=shown.opacity,
            weights=shown.weights,
            depths=starts,
            midpoints=places.midpoints,
            sdf_gradient=field.gradient.reshape((*starts.shape, 3)),
            cdf=shown.cdf,
            inside_sphere=places.inside_sphere,
            near_sphere=places.near_sphere,
            inv_s=inv_s,
        )

    def place(self, rays: RayVars, noise: Noise | None, sdf: Var | None = None) -> Var:
        """Depths of the sections inside the sphere, [R, N] ascending: even ones, then rounds nearer the surface.

        sdf: signed distances at the even ones, [R, n_samples], where they are known already.
        """
        with jt.no_grad():
            return self._placed(self.fields.sdf.at_weights(), rays, noise, sdf).detach()

    def _placed(self, surface: DistanceAtWeights, rays: RayVars, noise: Noise | None, sdf: Var | None = None) -> Var:
        """The same of a surface as it is now."""
        return place(*self._placing(surface, rays, noise, sdf))

    def up_sample_rounds(self, surface: DistanceAtWeights, rays: RayVars, noise: Noise | None) -> list[Var]:
        """The new depths of each round [R, K], then all depths sorted [R, N]."""
        return rounds(*self._placing(surface, rays, noise))

    def _placing(
        self, surface: DistanceAtWeights, rays: RayVars, noise: Noise | None, sdf: Var | None = None
    ) -> tuple[object, ...]:
        """What `ops.placing` is asked."""
        jitter = None if noise is None else jt.array(noise["inside"])
        depths = sampling.inside_depths(rays.near, rays.far, self.conf.n_samples, jitter)
        counts = sampling.round_counts(self.conf.n_importance, self.conf.up_sample_steps)
        return rays.origins, rays.directions, depths, sdf, surface.distance, counts, sampling.FIRST_INV_S

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
