"""NeRF with dense samples, coarse to fine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from data.rays import Rays
from models.config.blocks import TrainConfig
from models.estimators.coarse_to_fine import CoarseToFineEstimator
from models.fields.protocol import RadianceFields
from models.fields.registry import NERF, RADIANCE
from models.machine.backend import jt
from models.methods.nerf.conf import NeRFConfig
from models.methods.radiance import RadianceModel
from models.ops.volrend import expected_distance
from models.plan import TrainingPlan
from models.rendering.render import render_passes
from models.structs import RayView


class TwoPassModel(RadianceModel):
    """Two passes as a `models.methods.protocol.Model`."""

    type = NERF

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """The PSNR of the coarse pass."""
        return f"coarse {scalars['Statistics/coarse_psnr']:.2f}"

    def view(self, rays: Rays, step: int) -> RayView:
        """The fine pass; its normals are those of the density where the transmittance of a ray falls to one half."""
        with jt.no_grad():
            found = render_passes(self, rays, None, self.behind)
        shape = (len(rays), -1)
        weights, depths = (value.numpy().reshape(shape) for value in (found.weights, found.samples.distances))
        opacity = found.opacity.numpy()
        distance = expected_distance((weights * depths).sum(axis=1, keepdims=True), opacity)
        half = np.argmax(np.cumsum(weights, axis=1) >= 0.5 * opacity, axis=1)[:, None]
        points = (rays.origins + rays.directions * np.take_along_axis(depths, half, axis=1)).astype(np.float32)
        with jt.no_grad():
            normals = self.fields.fine.with_normals(jt.array(points), jt.array(rays.directions))[1].numpy()
        return RayView(found.rgb.numpy(), normals * opacity, distance, np.clip(opacity, 0.0, 1.0))


def build(conf: NeRFConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan) -> TwoPassModel:
    """The model. The coarse network is initialised first, as it is optimised first.

    A field other than the network of NeRF is used for both passes.
    """
    kind = RADIANCE[conf.radiance_field]
    coarse = kind.build(conf, "coarse", generator)
    fine = kind.build(conf, "fine", generator) if conf.radiance_field == NERF else coarse
    return TwoPassModel(RadianceFields(fine, coarse), CoarseToFineEstimator(conf.nerf_renderer), train, plan)
