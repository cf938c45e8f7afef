"""NeuS: a surface with dense samples, and its images."""

from __future__ import annotations

from data.rays import PixelBatch, Rays
from models.estimators.base import upload
from models.estimators.hierarchical import HierarchicalEstimator
from models.machine.backend import jt
from models.methods.neus.conf import NEUS
from models.methods.neus.sparing import sparing_view
from models.methods.surface import SurfaceModel
from models.rendering.render import render_surface
from models.rendering.views import region_view
from models.structs import Noise, RayView, Var


class NeuSModel(SurfaceModel):
    """NeuS with dense samples as a `models.methods.protocol.Model`."""

    type = NEUS
    estimator: HierarchicalEstimator

    def precompute(self, batch: PixelBatch, noise: Noise | None) -> Var | None:
        """What the estimator computes once per chunk."""
        with jt.no_grad():
            return self.estimator.precompute(batch, self.fields.sdf.at_weights().distance, noise)

    def view(self, rays: Rays, step: int) -> RayView:
        """Colours with background; normal, distance and opacity inside the sphere."""
        ratio = self.cos_anneal_ratio(step)
        return sparing_view(self.fields, self.estimator, rays, ratio, self.behind)

    def view_fully(self, rays: Rays, step: int) -> RayView:
        """The same with all networks evaluated at all samples."""
        with jt.no_grad():
            placed, fields, sdf = upload(rays), self.fields, self.fields.sdf.at_weights()
            samples = self.estimator.samples_of(placed, self.estimator.t_starts(placed, sdf.distance, None))
            geometry = sdf.evaluate(samples.positions)
            ratio = self.cos_anneal_ratio(step)
            rendering = render_surface(fields.color, fields.sharpness(), samples, geometry, ratio, self.behind)
            return region_view(rendering, geometry.gradient)
