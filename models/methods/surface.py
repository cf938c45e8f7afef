"""Surfaces (NeuS): a signed-distance field, a colour and inv_s, with any estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from data.rays import Rays
from data.scenes.scene import Scene
from models.config.blocks import TrainConfig
from models.estimators.conf import PackedConfig
from models.estimators.open_surface import OpenSurfaceEstimator
from models.estimators.packed import NO_ANNEALING
from models.estimators.packed_surface import SurfaceOccupancyEstimator
from models.estimators.sampler import PackedBatch, PackedSampler
from models.fields.protocol import SurfaceFields
from models.machine.backend import jt
from models.methods.fast.conf import FAST_NEUS
from models.methods.protocol import LevelSet
from models.methods.volume import VolumeModel
from models.ops.volrend import annealed_cos, interval_cdfs, packed_weights
from models.plan import TrainingPlan
from models.rendering.conf import PatchesConfig, PhotographsConfig
from models.rendering.patches import MOST_COMPARED, PatchComparison
from models.rendering.protocol import OfSurface
from models.rendering.render import render_surface, surface_alpha, surface_loss
from models.rendering.terms import masked_mean, masked_psnr
from models.rendering.views import packed_view
from models.structs import Array, FieldOutput, RayView, RenderOutput, Var, loss_scalars


class SurfaceModel(VolumeModel):
    """A surface as the zero level set of a signed distance."""

    objective = surface_loss
    background_keys = "masks or model.neus_renderer.n_outside"  # that model what is behind the surface
    fields: SurfaceFields

    def cos_anneal_ratio(self, step: int) -> float:
        """The function `cos_anneal_ratio` at a step."""
        return cos_anneal_ratio(step, self.train)

    def scalar_inputs(self, rendered: OfSurface) -> dict[str, Var]:
        """Colours and inv_s, and of dense samples what the published code plots."""
        rendering = rendered.rendering
        found = {"rgb": rendering.rgb, "target": rendered.target, "mask": rendered.counts, "inv_s": rendering.inv_s}
        if not rendering.samples.per_ray:
            return found
        samples, geometry, shape = rendering.samples, rendering.geometry, (len(rendered.target), -1)
        cos = (samples.directions * geometry.gradient).sum(dim=1)
        sdf, deltas, cos = (value.reshape(shape)[:, :1] for value in (geometry.sdf, samples.deltas, cos))
        slope = annealed_cos(cos, self.cos_anneal_ratio(rendered.step))
        cdf = interval_cdfs(sdf, slope, deltas, rendering.inv_s)[0]  # Phi_s at the first interval
        return found | {"cdf": cdf, "weight_max": rendering.weights.reshape(shape).max(dim=1, keepdims=True)}

    def scalars(self, output: Mapping[str, Var], losses: Mapping[str, Var]) -> dict[str, Var]:
        """The published TensorBoard scalars, and the other losses."""
        mask = output["mask"]
        found = loss_scalars(losses) | {
            "Statistics/s_val": 1.0 / output["inv_s"],
            "Statistics/psnr": masked_psnr(output["rgb"], output["target"], mask),
        }
        means = (name for name in ("cdf", "weight_max") if name in output)
        return found | {f"Statistics/{name}": masked_mean(output[name], mask) for name in means}

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """The text with inv_s."""
        return f"inv_s {1.0 / scalars['Statistics/s_val']:.1f}"

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
            return self.fields.sdf.at_weights().distance(jt.array(points)).numpy()

    def _gradients(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with jt.no_grad():
            found = self.fields.sdf.at_weights().evaluate(jt.array(points))
            return found.sdf.numpy(), found.gradient.numpy()

    def _colors(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        with jt.no_grad():
            place = jt.array(points)
            found = self.fields.sdf.at_weights().evaluate(place)
            return self.fields.color(place, found.gradient, -jt.array(normals), found.feature).numpy()


class PackedSurfaceModel(SurfaceModel):
    """A surface sampled in occupied cells, with additional losses."""

    type = FAST_NEUS
    background_keys = "masks"
    estimator: SurfaceOccupancyEstimator | OpenSurfaceEstimator

    def __init__(
        self,
        fields: SurfaceFields,
        estimator: SurfaceOccupancyEstimator | OpenSurfaceEstimator,
        train: TrainConfig,
        plan: TrainingPlan,
        packed: PackedConfig,
        patches: PatchesConfig,
        photographs: PhotographsConfig,
    ) -> None:
        super().__init__(fields, estimator, train, plan, photographs)
        self._packed, self._patches_conf = packed, patches
        self.patches: PatchComparison | None = None  # images of the scene, if patches are compared

    def cos_anneal_ratio(self, step: int) -> float:
        """1: the increase of inv_s replaces the annealing."""
        return NO_ANNEALING

    def rates(self, step: int) -> dict[str, float]:
        """Tables learn at the full rate, the networks and inv_s at fractions of it."""
        found = dict.fromkeys(self.networks, self._packed.network_rate)
        found |= {f"{name}.table": 1.0 for name in self.networks}
        return found | {"variance_network_fine": self._packed.sharpness_rate} | super().rates(step)

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PackedSampler:
        """See `VolumeModel.sampler`; also keeps the images for the patch comparison."""
        sampler = super().sampler(scene, batch_size, generator)
        self.patches = PatchComparison(scene, self._patches_conf) if self.weights["patches"].value > 0 else None
        self.estimator.region.most_compared = None if self.patches is None else MOST_COMPARED
        return sampler

    def free_rays(self, batch: PackedBatch) -> Array | None:
        """Rays outside the masks; without masks, rays with the colour of a uniform backdrop."""
        return self.estimator.free_rays(batch)

    def view(self, rays: Rays, step: int) -> RayView:
        """Colours with background; normal, distance and opacity of the region."""
        estimator, behind = self.estimator, self.behind

        def look(rays: Rays) -> tuple[RenderOutput, Var, int]:
            step, inv_s = estimator.resolving_step(), self.fields.sharpness()
            found = estimator.region.march_view(rays, step)
            geometry = self.fields.sdf.at_weights().evaluate(found.points)
            alpha = surface_alpha(geometry, found.directions, jt.full_like(geometry.sdf, step), inv_s, NO_ANNEALING)
            samples, rows, count = estimator.view_samples(rays, found, packed_weights(alpha, found.offsets))
            seen = FieldOutput(geometry.sdf[rows], geometry.feature[rows], geometry.gradient[rows])
            shown = render_surface(self.fields.color, inv_s, samples, seen, NO_ANNEALING, behind)
            return shown, seen.gradient, count

        return packed_view(rays, look, behind)

    @property
    def level_set(self) -> LevelSet:
        """The zero level set of the signed distance, within the region."""
        return replace(super().level_set, outward=self.estimator.extracted, seen_space=self.estimator.seen_space)


def cos_anneal_ratio(step: int, train: TrainConfig) -> float:
    """From 0 at the start to 1 at `anneal_end`; constant 1 if that is 0 (as published, exp_runner.py)."""
    return 1.0 if train.anneal_end == 0.0 else min(1.0, step / train.anneal_end)
