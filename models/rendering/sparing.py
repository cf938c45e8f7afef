"""NeuS's pictures, with the networks asked only where their answer can be seen.

R rays, N sections inside the sphere, M in all. Training and its outputs are `NeuSRenderer`'s, and so is a picture of
the rays that meet the object: float32's last digit aside, what is left out is multiplied by zero there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from data.rays import Rays
from models.backend import jt
from models.rendering import sampling, visible, volrend
from models.rendering.renderer import Fields, NeuSRenderer, ray_view
from models.structs import RayView


class SparingRenderer(NeuSRenderer):
    """A `NeuSRenderer` with another `view`."""

    def view(self, rays: Rays, cos_anneal_ratio: float, background_rgb: np.ndarray | None) -> RayView:
        """As `NeuSRenderer.view`, but a ray on which nothing can be opaque shows the background alone.

        There, `NeuSRenderer.view` lends each empty section an opacity of 1e-5. With a background model, a ray that
        misses the sphere meets no section of the object and shows the same. Without one, its sections count like any
        other: it is empty where it passes no surface.
        """
        with jt.no_grad():
            seen = np.ones(len(rays), bool) if self.fields.nerf is None else visible.meets_sphere(rays)
            sdf = self._even_distances(rays.at(seen))
            spacing = sampling.REGION_DIAMETER / max(self.conf.n_samples - 1, 1)
            opaque = visible.may_be_opaque(rays.at(seen), sdf, spacing, self.sharpness())
            seen[seen] = opaque
            return visible.merged(
                rays,
                seen,
                lambda some: self._view_object(some, sdf[opaque], cos_anneal_ratio, background_rgb),
                lambda some: self._view_background(some, background_rgb),
            )

    def _even_distances(self, rays: Rays) -> np.ndarray:
        """Signed distances at the even depths, [R, n_samples]."""
        if len(rays) == 0:
            return np.empty((0, self.conf.n_samples), np.float32)
        depths = sampling.inside_depths(jt.array(rays.near), jt.array(rays.far), self.conf.n_samples, None)
        return self._sdf_along(jt.array(rays.origins), jt.array(rays.directions), depths).numpy()

    def _view_object(
        self, rays: Rays, sdf: np.ndarray, cos_anneal_ratio: float, background_rgb: np.ndarray | None
    ) -> RayView:
        """`view` of rays that may meet something opaque; `sdf` of `_even_distances`."""
        depths = self.place_depths(rays, None, jt.array(sdf))
        renderer = self._asked_where_seen(rays, depths.numpy())
        return ray_view(renderer.render(rays, None, cos_anneal_ratio, background_rgb, depths))

    def _asked_where_seen(self, rays: Rays, depths: np.ndarray) -> NeuSRenderer:
        """This renderer for rays at depths [R, N]; beside a background, each network is asked on its side alone."""
        if self.fields.nerf is None:
            return self
        inside, outside = visible.sections_apart(rays, depths, self._last_length())
        within = visible.Rows.where(inside)
        beyond = np.ones((len(rays), self.conf.n_outside), bool)
        fields = Fields(
            sdf=visible.SdfAt(self.fields.sdf, within),
            color=visible.ColorAt(self.fields.color, within),
            sharpness=self.fields.sharpness,
            nerf=visible.NerfAt(self.fields.nerf, visible.Rows.where(np.concatenate([outside, beyond], axis=1))),
        )
        return NeuSRenderer(fields, self.conf)

    def _view_background(self, rays: Rays, background_rgb: np.ndarray | None) -> RayView:
        """`view` of rays on which nothing is opaque: as if there were no object."""
        behind = np.zeros((1, 3), np.float32) if background_rgb is None else background_rgb.reshape(1, 3)
        if self.fields.nerf is None:
            return visible.unseen(np.repeat(behind.astype(np.float32), len(rays), axis=0))
        depths = NeuSRenderer(replace(self.fields, sdf=visible.NoObject()), self.conf).place_depths(rays, None)
        inside, _ = visible.sections_apart(rays, depths.numpy(), self._last_length())
        background = self._asked_where_seen(rays, depths.numpy())._background(
            jt.array(rays.origins), jt.array(rays.directions), depths, self._place_outside(rays, None)
        )
        count = depths.shape[1]
        alpha = jt.concat(
            [background.alpha[:, :count] * jt.array(np.float32(~inside)), background.alpha[:, count:]], dim=1
        )
        weights = volrend.weights_from_alpha(alpha)
        opacity = weights.sum(dim=1, keepdims=True)
        rgb = volrend.composite(weights, background.rgb) + jt.array(behind.astype(np.float32)) * (1.0 - opacity)
        return visible.unseen(rgb.numpy())
