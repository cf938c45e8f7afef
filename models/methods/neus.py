"""NeuS (arXiv 2106.10689): a signed distance, a colour and inv_s, with dense samples. `fast.py` shares the surface."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from data.rays import Rays
from models.config.blocks import TrainConfig
from models.estimators.hierarchical import HierarchicalEstimator
from models.fields.protocol import SurfaceFields
from models.fields.registry import COLORS, SURFACES
from models.fields.sdf import SingleVarianceNetwork
from models.machine.backend import jt
from models.methods.confs import ESTIMATORS, NEUS, NeuSConfig
from models.methods.protocol import LevelSet
from models.methods.sparing import region_view, sparing_view
from models.methods.volume import VolumeModel
from models.ops.volrend import annealed_cos, interval_cdfs
from models.plan import TrainingPlan
from models.rendering.losses import masked_mean, masked_psnr
from models.rendering.protocol import OfSurface
from models.rendering.render import render_surface, surface_loss
from models.structs import Noise, RayBatch, RayView, SampleRequest, Var, loss_scalars


class SurfaceModel(VolumeModel):
    """A surface as the zero level set of a signed distance."""

    objective = surface_loss
    background_keys = "masks"  # the keys that model what is behind the surface, for messages
    fields: SurfaceFields

    def cos_anneal_ratio(self, step: int) -> float:
        """The function `cos_anneal_ratio` at a step."""
        return cos_anneal_ratio(step, self.train)

    def precompute(self, batch: RayBatch, noise: Noise | None) -> Var | None:
        """What the estimator computes once per chunk."""
        with jt.no_grad():
            distance = self.fields.sdf.bind().distance
            return self.estimator.precompute(SampleRequest(batch.rays, batch, noise, distance))

    def scalar_inputs(self, rendered: OfSurface) -> dict[str, Var]:
        """Colours and inv_s, and of dense samples what the published code plots."""
        rendering = rendered.rendering
        inputs = {"rgb": rendering.rgb, "target": rendered.target, "mask": rendered.counts, "inv_s": rendering.inv_s}
        if not rendering.samples.per_ray:
            return inputs
        samples, geometry, shape = rendering.samples, rendering.geometry, (len(rendered.target), -1)
        cos = (samples.directions * geometry.gradient).sum(dim=1)
        sdf, deltas, cos = (value.reshape(shape)[:, :1] for value in (geometry.sdf, samples.deltas, cos))
        slope = annealed_cos(cos, self.cos_anneal_ratio(rendered.step))
        cdf = interval_cdfs(sdf, slope, deltas, rendering.inv_s)[0]  # Phi_s at the first interval
        return inputs | {"cdf": cdf, "weight_max": rendering.weights.reshape(shape).max(dim=1, keepdims=True)}

    def scalars(self, output: Mapping[str, Var], losses: Mapping[str, Var]) -> dict[str, Var]:
        """The published TensorBoard scalars, and the other losses."""
        mask = output["mask"]
        scalars = loss_scalars(losses) | {
            "Statistics/s_val": 1.0 / output["inv_s"],
            "Statistics/psnr": masked_psnr(output["rgb"], output["target"], mask),
        }
        means = (name for name in ("cdf", "weight_max") if name in output)
        return scalars | {f"Statistics/{name}": masked_mean(output[name], mask) for name in means}

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """The text with inv_s."""
        return f"inv_s {1.0 / scalars['Statistics/s_val']:.1f}"

    def view(self, rays: Rays, step: int) -> RayView:
        """Colours with background; normal, distance and opacity inside the sphere; all samples are evaluated."""
        with jt.no_grad():
            fields, sdf = self.fields, self.fields.sdf.bind()
            samples = self.estimator.sample(SampleRequest(rays, distance=sdf.distance))
            geometry, ratio = sdf.evaluate(samples.positions), self.cos_anneal_ratio(step)
            rendering = render_surface(fields.color, fields.sharpness(), samples, geometry, ratio, self.behind)
            return region_view(rendering, geometry.gradient)

    def sharpness(self) -> float:
        """The current inv_s."""
        with jt.no_grad():
            return float(self.fields.sharpness().item())

    @property
    def level_set(self) -> LevelSet:
        """The zero level set of the signed distance."""
        return LevelSet(
            self._distances,
            0.0,
            "the signed distance",
            background=self.background_keys,
            bounded=True,
            gradient=self._gradients,
            color=self._colors,
        )

    def _distances(self, points: np.ndarray) -> np.ndarray:
        with jt.no_grad():
            return self.fields.sdf.bind().distance(jt.array(points)).numpy()

    def _gradients(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with jt.no_grad():
            geometry = self.fields.sdf.bind().evaluate(jt.array(points))
            return geometry.sdf.numpy(), geometry.gradient.numpy()

    def _colors(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        with jt.no_grad():
            place = jt.array(points)
            geometry = self.fields.sdf.bind().evaluate(place)
            return self.fields.color(place, geometry.gradient, -jt.array(normals), geometry.feature).numpy()


def cos_anneal_ratio(step: int, train: TrainConfig) -> float:
    """From 0 at the start to 1 at `anneal_end`; constant 1 if that is 0 (as published, exp_runner.py)."""
    return 1.0 if train.anneal_end == 0.0 else min(1.0, step / train.anneal_end)


class NeuSModel(SurfaceModel):
    """NeuS with dense samples as a `models.methods.protocol.Model`."""

    type = NEUS
    view_fully = SurfaceModel.view

    def view(self, rays: Rays, step: int) -> RayView:
        """Colours with background; normal, distance and opacity inside the sphere."""
        if isinstance(self.estimator, HierarchicalEstimator):
            return sparing_view(self, self.estimator, rays, step)
        return self.view_fully(rays, step)


def build(conf: NeuSConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan) -> NeuSModel:
    """The model; the estimator and its networks are initialised last."""
    fields = SurfaceFields(
        sdf=SURFACES[conf.surface].build(conf.block(conf.surface), generator),
        color=COLORS[conf.color].build(conf, generator),
        sharpness=SingleVarianceNetwork(conf.variance_network),
    )
    model = NeuSModel(fields, ESTIMATORS[conf.estimator].build(conf, generator), train, plan)
    if key := conf.sampling.background_key:
        model.background_keys = f"masks or model.{conf.estimator}.{key}"
    return model
