"""NeRF (arXiv 2003.08934): a density and a colour, sampled from coarse to fine. `fast.py` shares the field."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from data.rays import Rays
from models.config.blocks import TrainConfig
from models.estimators.coarse_to_fine import CoarseToFineEstimator
from models.fields.protocol import RadianceFields
from models.fields.registry import NERF, RADIANCE
from models.machine.backend import jt
from models.methods.confs import NeRFConfig
from models.methods.protocol import LevelSet
from models.methods.volume import VolumeModel
from models.ops.volrend import expected_distance
from models.plan import TrainingPlan
from models.rendering.losses import masked_mean, masked_psnr
from models.rendering.protocol import OfRays
from models.rendering.render import radiance_loss, render_passes
from models.structs import RayView, Var, loss_scalars

# Density per working-frame unit at the surface: a path of a hundredth of the sphere's diameter absorbs 40 %.
SURFACE_DENSITY = 25.0


class RadianceModel(VolumeModel):
    """A density and an emitted colour. Nothing is precomputed: the coarse pass is differentiated."""

    objective = radiance_loss
    fields: RadianceFields

    def scalar_inputs(self, rendered: OfRays) -> dict[str, Var]:
        """Colours, and of two passes the coarse colours and the largest weight of each ray."""
        rendering = rendered.rendering
        inputs = {"rgb": rendering.rgb, "target": rendered.target, "mask": rendered.counts}
        if rendering.samples.coarse is None:
            return inputs
        weights = rendering.weights.reshape((len(rendered.target), -1))
        return inputs | {"coarse_rgb": rendering.samples.coarse.rgb, "weight_max": weights.max(dim=1, keepdims=True)}

    def scalars(self, output: Mapping[str, Var], losses: Mapping[str, Var]) -> dict[str, Var]:
        """The losses, and the PSNR of each pass."""
        target, mask = output["target"], output["mask"]
        scalars = loss_scalars(losses) | {"Statistics/psnr": masked_psnr(output["rgb"], target, mask)}
        if "coarse_rgb" in output:
            scalars["Statistics/weight_max"] = masked_mean(output["weight_max"], mask)
            scalars["Statistics/coarse_psnr"] = masked_psnr(output["coarse_rgb"], target, mask)
        return scalars

    @property
    def level_set(self) -> LevelSet:
        """A level set of the density."""
        return LevelSet(
            self._emptiness,
            SURFACE_DENSITY,
            "minus the density",
            evened=lambda emptiness: -self.fields.fine.raw_of(-emptiness),
            color=self._colors,
        )

    def _emptiness(self, points: np.ndarray) -> np.ndarray:
        """Minus the density at points [P, 3], [P, 1]."""
        with jt.no_grad():
            return -self.fields.fine.density(jt.array(points)).numpy()

    def _colors(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        with jt.no_grad():
            return self.fields.fine.evaluate(jt.array(points), -jt.array(normals)).rgb.numpy()


class TwoPassModel(RadianceModel):
    """Two passes as a `models.methods.protocol.Model`."""

    type = NERF

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """The PSNR of the coarse pass."""
        return f"coarse {scalars['Statistics/coarse_psnr']:.2f}"

    def view(self, rays: Rays, step: int) -> RayView:
        """The fine pass; its normals are those of the density where the transmittance of a ray falls to one half."""
        with jt.no_grad():
            rendering = render_passes(self, rays, None, self.behind)
        shape = (len(rays), -1)
        weights, depths = (value.numpy().reshape(shape) for value in (rendering.weights, rendering.samples.distances))
        opacity = rendering.opacity.numpy()
        distance = expected_distance((weights * depths).sum(axis=1, keepdims=True), opacity)
        half = np.argmax(np.cumsum(weights, axis=1) >= 0.5 * opacity, axis=1)[:, None]
        points = (rays.origins + rays.directions * np.take_along_axis(depths, half, axis=1)).astype(np.float32)
        with jt.no_grad():
            normals = self.fields.fine.with_normals(jt.array(points), jt.array(rays.directions))[1].numpy()
        return RayView(rendering.rgb.numpy(), normals * opacity, distance, np.clip(opacity, 0.0, 1.0))


def build(conf: NeRFConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan) -> TwoPassModel:
    """The model. The coarse network is initialised first, as it is optimised first.

    A field other than the network of NeRF is used for both passes.
    """
    kind = RADIANCE[conf.radiance_field]
    coarse = kind.build(conf, "coarse", generator)
    fine = kind.build(conf, "fine", generator) if conf.radiance_field == NERF else coarse
    return TwoPassModel(RadianceFields(fine, coarse), CoarseToFineEstimator(conf.nerf_renderer), train, plan)
