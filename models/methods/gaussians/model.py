"""Gaussians as a method: rendering, objective, densification, images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data.rays import ImageRays, PinholeCamera, Rays
from data.scenes.scene import Posed, Scene
from models.config.blocks import TrainConfig
from models.fields.state import take_rows
from models.machine.backend import jt
from models.methods.gaussians import densify
from models.methods.gaussians.batch import Picture, PictureBatch, PictureSampler, numbers_of
from models.methods.gaussians.conf import MCMC, SURFELS, SplatsConfig
from models.methods.gaussians.fusion import Fusion
from models.methods.gaussians.picture import Viewpoint, depth_of, paint, ray_view
from models.methods.gaussians.pulled import Pulled
from models.methods.gaussians.splats import NAMES, Splats, first_points, from_points, one_splat, require_seen
from models.methods.gaussians.terms import distortion_term, normal_term
from models.methods.protocol import LevelSet, Model, Parameters
from models.ops.picture_loss import picture_loss
from models.ops.splat_raster import COLOR, OPACITY
from models.ops.splat_wander import step_of
from models.plan import TrainingPlan
from models.rendering.losses import mask_term
from models.structs import MASK_THRESHOLD, Objective, RayView, StepContext, Term, Var, loss_tag

SPREAD = 1.1  # extent of a scene relative to the spread of its cameras
GEOMETRY_FROM = 0.25  # fraction of the training after which the 2DGS losses apply


@dataclass(frozen=True)
class Shown:
    """The output of a batch for scalars."""

    error: Var  # [R, 1], mean squared error of each image


class GaussiansModel(Model):
    """Gaussians as a `models.methods.protocol.Model`."""

    entries = "pictures"
    shows_pictures = True

    def __init__(
        self, conf: SplatsConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan
    ) -> None:
        self.conf, self.train, self.plan = conf, train, plan
        self.splats = Splats(one_splat(conf))
        self.generator = generator
        self.extent = 1.0
        self.cameras: list[PinholeCamera] = []
        self.pulled = Pulled()
        self._seen: dict[str, tuple[Var, int, int]] = {}  # probe -> radii and size of its image

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """One network, `splats`."""
        return {densify.NETWORK: self.splats}

    @property
    def loss_weights(self) -> dict[str, float]:
        """The weights above 0 of the losses that apply, by name."""
        conf = self.conf
        names = ("mask", "distortion") * self.plan.uses_masks + ("opacity", "size") * (conf.densify == MCMC)
        weights = {name: getattr(conf, f"{name}_weight", self.train.mask_weight) for name in (*names, "normal")}
        weights["color"] = 1.0
        return {name: weight for name, weight in weights.items() if weight > 0}

    @property
    def is_flat(self) -> bool:
        """Whether they are surfels."""
        return self.conf.form == SURFELS

    @property
    def level_set(self) -> LevelSet | None:
        """The fused distances of all cameras; None without a scene."""
        return Fusion(self._depth_of, tuple(self.cameras)).level_set() if self.cameras else None

    # the batch

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PictureSampler:
        """Whole photographs; initialises the Gaussians from the scene."""
        centres = scene.c2w[:, :3, 3]
        self.extent = SPREAD * max(float(np.linalg.norm(centres - centres.mean(axis=0), axis=1).max()), 1.0)
        self.see(scene)
        points = first_points(scene, self.conf, self.plan.uses_masks, self.generator)
        require_seen(points, self.cameras, scene.name)
        self.splats.fill(from_points(points, self.conf, self.generator))
        self.pulled.forget()
        return PictureSampler(scene, batch_size, generator)

    def see(self, views: Posed) -> None:
        """Take the cameras, from which depth maps are fused."""
        self.cameras = [
            PinholeCamera(views.intrinsics[view], views.c2w[view], *views.size(view)) for view in range(views.n_views)
        ]

    # what is computed

    def degree(self, step: int) -> int:
        """The degree of spherical harmonics at a step, which increases during training."""
        done = step / max(1.0, self.conf.degrees_until * self.train.end_iter)
        return min(self.conf.degree, int(done * self.conf.degree)) if self.conf.degree else 0

    def _viewpoint(self, camera: np.ndarray, size: tuple[int, int], context: StepContext) -> Viewpoint:
        return Viewpoint(camera, size, self.degree(context.step), context.background_rgb)

    def objective(self, batch: PictureBatch, noise: Any, context: StepContext, precomputed: Any = None) -> Objective:
        """The published losses, averaged over the images."""
        sums: dict[str, list[Term]] = {}
        errors, watched = [], {}
        for picture in batch.pictures:
            probe = jt.zeros((self.splats.count, 2))
            probe.start_grad()
            name = f"probe/{picture.index}"
            height, width = picture.rgb.shape[:2]
            viewpoint = self._viewpoint(picture.camera, (width, height), context)
            shown, radii = paint(self.splats, self.conf, viewpoint, probe)
            watched[name], self._seen[name] = probe, (radii, width, height)
            rgb, target = (
                self.taken(shown[:, :, COLOR], picture.view),
                picture.target(self.plan.uses_masks, context.background_rgb),
            )
            color = Term(picture_loss(rgb, target, self.conf.structure_share), 1.0)
            for term, value in ({"color": color} | self._terms(picture, shown, context)).items():
                sums.setdefault(term, []).append(value)
            errors.append((rgb.detach() - target).sqr().mean().reshape((1, 1)))
        terms = {
            name: Term(sum(v.total for v in values), sum(v.count for v in values), values[0].weight)
            for name, values in sums.items()
        }
        return Objective(terms | self._regularisers(len(batch)), Shown(jt.concat(errors, dim=0)), watched)

    def taken(self, rgb: Var, view: int) -> Var:
        """Colours [H, W, 3] to compare with a photograph."""
        del view
        return rgb

    def _terms(self, picture: Picture, shown: Var, context: StepContext) -> dict[str, Term]:
        """The losses of one image besides its colours."""
        terms: dict[str, Term] = {}
        opacity = shown[:, :, OPACITY]
        mask = picture.mask if self.plan.uses_masks else None
        if mask is not None:
            shows = jt.array((mask > MASK_THRESHOLD).astype(np.float32).reshape(-1, 1))
            terms["mask"] = mask_term(opacity.reshape((-1, 1)), shows, self.train.mask_weight)
        if self.is_flat and context.step >= GEOMETRY_FROM * self.train.end_iter:
            # Without masks, its pull on foreground and background exceeds the colour loss.
            if mask is not None and self.conf.distortion_weight > 0:
                terms["distortion"] = distortion_term(shown, self.conf.distortion_weight)
            if self.conf.normal_weight > 0 and min(shown.shape[:2]) > 2:
                terms["normal"] = normal_term(shown, picture.camera, self.conf.normal_weight)
        return terms

    def _regularisers(self, entries: int) -> dict[str, Term]:
        """Regularisers of opacity and size (MCMC)."""
        if self.conf.densify != MCMC:
            return {}
        sizes = self.splats.sizes[:, :2] if self.is_flat else self.splats.sizes
        found = {}
        if self.conf.opacity_weight > 0:
            found["opacity"] = Term(
                self.splats.opacities.sigmoid().mean() * entries, float(entries), self.conf.opacity_weight
            )
        if self.conf.size_weight > 0:
            found["size"] = Term(sizes.exp().mean() * entries, float(entries), self.conf.size_weight)
        return found

    # around a step

    def rates(self, step: int) -> dict[str, float]:
        """Learning rates of the published code, relative to train.learning_rate, which should be 1."""
        conf, done = self.conf, min(1.0, step / self.train.end_iter)
        mean_rate = conf.mean_rate * (conf.mean_rate_end / conf.mean_rate) ** done
        rates = (
            mean_rate * self.extent,
            conf.turn_rate,
            conf.size_rate,
            conf.opacity_rate,
            conf.color_rate,
            conf.rest_rate,
        )
        return {f"{densify.NETWORK}.{name}": rate for name, rate in zip(NAMES, rates, strict=True)}

    def before_step(self, context: StepContext) -> None:
        """Discard the gradients of the previous step."""
        self._seen.clear()

    def _is_changing(self, step: int) -> bool:
        """Whether densification is active after `step` steps."""
        return self.conf.densify_from <= step / self.train.end_iter < self.conf.densify_until

    def acts_after(self, step: int) -> bool:
        """Whether `after_step` has work at this step."""
        return self.conf.densify == MCMC or self._is_changing(step + 1)

    def after_step(self, parameters: Parameters, context: StepContext, gradients: Mapping[str, Var]) -> None:
        """Accumulate statistics, densify and prune, and add noise."""
        step = context.step + 1
        generator = np.random.default_rng((self.train.seed, step))
        is_due = self._is_changing(step) and step % self.conf.densify_every == 0
        if self.conf.densify == MCMC:
            if is_due:
                change = densify.relocated(self._values(), self.conf, generator)
                if change is not None:
                    densify.apply(parameters, change)
                    self.pulled.forget()
            self._wander(step)
            return
        self._count(gradients)
        every = max(1, int(self.conf.reset_every * self.train.end_iter))
        if is_due:
            pull = self.pulled.mean(self.splats.count)
            was_reset = step > every
            change = densify.adaptive(self._values(), pull, self.extent, self.conf, self.is_flat, was_reset, generator)
            densify.apply(parameters, change)
            self.pulled.forget()
        if step % every == 0 and self._is_changing(step):
            parameters.replace(densify.NETWORK, "opacities", densify.reset_opacities(self.splats.opacities.numpy()))

    def _values(self) -> densify.Values:
        """Copies of all parameters."""
        return {name: getattr(self.splats, name).numpy() for name in NAMES}

    def _wander(self, step: int) -> None:
        """Add the SGLD noise of a step (MCMC)."""
        rate = self.conf.noise * self.rates(step)[f"{densify.NETWORK}.means"]
        if rate > 0.0:
            self.splats.wander(step_of(rate, self.is_flat, self.train.seed, step))

    def _count(self, gradients: Mapping[str, Var]) -> None:
        """Accumulate the means2d gradients, in units of half an image, of the visible Gaussians."""
        for name, (radii, width, height) in self._seen.items():
            half = 0.5 * self.train.batch_size
            self.pulled.add(gradients[name], radii, (half * width, half * height))

    # what is saved

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """Adopt the number of Gaussians of a checkpoint."""
        if shapes[densify.NETWORK].get("means", (0,))[0] < 1:
            raise ValueError("it contains no Gaussians")
        take_rows(self.splats, shapes[densify.NETWORK])
        self.pulled.forget()

    def buffers(self) -> dict[str, np.ndarray]:
        """The statistics of densification, and the form."""
        return self.pulled.buffers(self.splats.count) | {"flat": np.array([self.is_flat])}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        if bool(np.ravel(buffers.get("flat", self.is_flat))[0]) != self.is_flat:
            raise ValueError(f"its Gaussians do not have model.gaussians.form = {self.conf.form}")
        self.pulled.load_buffers(buffers, self.splats.count)

    # what is shown

    def scalars(self, output: Shown, losses: Mapping[str, Var]) -> dict[str, Var]:
        """The losses, and the PSNR of the batch."""
        decibels = output.error.mean().log() * (-10.0 / np.log(10.0))
        named = {loss_tag(name): value for name, value in losses.items() if name != "total"}
        count = jt.array(np.array([self.splats.count], np.float32))
        return {"Loss/loss": losses["total"], "Statistics/psnr": decibels, "Statistics/splats": count} | named

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """The number of Gaussians."""
        return f"{self.splats.count} splats"

    def view(self, rays: Rays, context: StepContext) -> RayView:
        """A rendered whole image; raises ValueError for rays that are not one."""
        if not isinstance(rays, ImageRays):
            raise ValueError("Gaussians render whole images only")
        with jt.no_grad():
            return ray_view(*self._seen_by(rays.camera, context), rays)

    def _seen_by(self, camera: PinholeCamera, context: StepContext) -> tuple[Var, np.ndarray]:
        """The image of a camera, and the camera's numbers."""
        numbers = numbers_of(camera.intrinsics, camera.c2w)
        return paint(self.splats, self.conf, self._viewpoint(numbers, (camera.width, camera.height), context))[
            0
        ], numbers

    def _depth_of(self, camera: PinholeCamera) -> tuple[np.ndarray, np.ndarray]:
        """Depth and opacity [H, W] of a camera."""
        with jt.no_grad():
            return depth_of(self._seen_by(camera, StepContext(0, None))[0])
