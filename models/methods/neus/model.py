"""NeuS: a surface with dense samples, its images, and its construction."""

from __future__ import annotations

import numpy as np

from data.rays import PixelBatch, Rays
from models.config.blocks import TrainConfig
from models.estimators.base import upload
from models.estimators.hierarchical import HierarchicalEstimator
from models.fields.protocol import SurfaceFields
from models.fields.radiance import NeRF
from models.fields.registry import COLORS, SURFACES
from models.fields.sdf import SingleVarianceNetwork
from models.machine.backend import jt
from models.methods.neus.conf import NEUS, NeuSConfig
from models.methods.neus.sparing import sparing_view
from models.methods.surface import SurfaceModel
from models.plan import TrainingPlan
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
        return sparing_view(self, self.estimator, rays, step)

    def view_fully(self, rays: Rays, step: int) -> RayView:
        """The same with all networks evaluated at all samples."""
        with jt.no_grad():
            placed, fields, sdf = upload(rays), self.fields, self.fields.sdf.at_weights()
            samples = self.estimator.samples_of(placed, self.estimator.t_starts(placed, sdf.distance, None))
            geometry = sdf.evaluate(samples.positions)
            ratio = self.cos_anneal_ratio(step)
            rendering = render_surface(fields.color, fields.sharpness(), samples, geometry, ratio, self.behind)
            return region_view(rendering, geometry.gradient)


def build(conf: NeuSConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan) -> NeuSModel:
    """The model, with a background network if the conf uses one."""
    fields = SurfaceFields(
        sdf=SURFACES[conf.surface].build(conf.block(conf.surface), generator),
        color=COLORS[conf.color].build(conf, generator),
        sharpness=SingleVarianceNetwork(conf.variance_network),
    )
    nerf = NeRF(conf.nerf, generator) if conf.neus_renderer.n_outside > 0 else None
    return NeuSModel(fields, HierarchicalEstimator(conf.neus_renderer, nerf), train, plan)
