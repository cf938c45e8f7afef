"""Gaussians as a method: rendering, objective, densification, images, construction.

Their surface is that of a fusion of rendered depth maps into a truncated signed distance (Curless and Levoy 1996). V
cameras, P points of the working frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from data.rays import ImageRays, PinholeCamera, Rays
from data.scenes.scene import Posed, Scene
from models.config.blocks import EXPOSURE, PhotographsConfig, TrainConfig
from models.config.strict import ConfigError
from models.fields.color import AFFINE, Exposure
from models.fields.state import take_rows
from models.machine.backend import jt
from models.methods.gaussians.batch import PictureBatch, PictureSampler, numbers_of
from models.methods.gaussians.conf import SURFELS, GaussiansConfig, SplatsConfig
from models.methods.gaussians.splats import (
    NAMES,
    NETWORK,
    Splats,
    first_points,
    from_points,
    is_due,
    relocated,
    require_seen,
)
from models.methods.gaussians.terms import LOSSES, RenderedPicture, normals_towards_camera
from models.methods.protocol import LevelSet, Model, Parameters
from models.ops.gaussians import splat_raster as raster
from models.ops.gaussians.splat_project import project_ellipsoids, project_surfels, shade_splats
from models.ops.gaussians.splat_raster import COLOR
from models.ops.gaussians.splat_wander import step_of
from models.ops.volrend import SEEN_OPACITY
from models.plan import TrainingPlan
from models.rendering.loss_table import terms_of, weights_of
from models.structs import Objective, RayView, Term, Var, loss_scalars


def rasterize(
    splats: Splats,
    conf: SplatsConfig,
    numbers: np.ndarray,
    size: tuple[int, int],
    degree: int,
    background: np.ndarray | None,
) -> Var:
    """The image [H, W, C], see `ops.gaussians.splat_raster`.

    Args:
        numbers: of the camera, see `splat_project.camera_numbers`.
        size: width, height.
        degree: of the harmonics.
        background: [3], None for black.
    """
    is_flat, camera = conf.form == SURFELS, jt.array(numbers)
    project = project_surfels if is_flat else project_ellipsoids
    composite = raster.composite_surfels if is_flat else raster.composite_ellipsoids
    seen = project(splats.means, splats.quats, splats.sizes, camera, *size)
    colors = shade_splats(splats.means, splats.dc, splats.rest, camera, degree)
    behind = np.zeros(3) if background is None else background
    look = raster.Look(colors, splats.opacities.sigmoid(), jt.array(np.asarray(behind, np.float32)))
    return composite(seen, look, raster.Raster(*size))


def ray_view(shown: Var, camera: np.ndarray, rays: ImageRays) -> RayView:
    """An image for results. The normals of ellipsoids are those of the surface given by their depths."""
    is_flat = shown.shape[2] == raster.SURFEL_CHANNELS
    opacity = shown[:, :, raster.OPACITY].numpy().reshape(-1, 1)
    normal = (shown[:, :, raster.NORMAL] if is_flat else normals_towards_camera(shown, camera)).numpy().reshape(-1, 3)
    turn = rays.camera.c2w[:3, :3]
    along = rays.directions @ turn[:, 2:].astype(np.float32)
    depth = depth_of(shown)[0].reshape(-1, 1)
    distance = np.divide(depth, along, out=np.zeros_like(depth), where=along > 0)
    rgb = np.clip(shown[:, :, raster.COLOR].numpy().reshape(-1, 3), 0.0, 1.0)
    return RayView(rgb, (normal @ turn.T).astype(np.float32), distance, opacity)


def depth_of(shown: Var) -> tuple[np.ndarray, np.ndarray]:
    """Depth, 0 if nothing is visible, and opacity [H, W] of an image.

    The depth of surfels is the mean over the first part of the accumulated weight: they overlap in a layer, outlines
    and SfM points agree with its outer side, and surfels behind it would increase a mean over all of it.
    """
    opacity = shown[:, :, raster.OPACITY].numpy()[:, :, 0]
    sums, most = shown[:, :, raster.DEPTH], 1.0
    if shown.shape[2] == raster.SURFEL_CHANNELS:
        sums, most = shown[:, :, raster.FRONT], 1.0 - raster.FRONT_LEFT
    depth, taken = sums.numpy()[:, :, 0], np.minimum(opacity, np.float32(most))
    return np.divide(depth, taken, out=np.zeros_like(depth), where=opacity > SEEN_OPACITY), opacity


SPREAD = 1.1  # extent of a scene relative to the spread of its cameras
DEGREES_UNTIL = 0.3  # fraction of the training until all degrees of the harmonics are active
# Learning rates of the published code; that of the centres, relative to the extent, falls exponentially.
MEAN_RATE, LAST_MEAN_RATE = 1.6e-4, 1.6e-6
RATES = {"quats": 1e-3, "sizes": 5e-3, "opacities": 5e-2, "dc": 2.5e-3, "rest": 1.25e-4}
NOISE = 5e5  # SGLD noise at low opacity, relative to the learning rate of the centres


class GaussiansModel(Model):
    """Gaussians as a `models.methods.protocol.Model`."""

    entries = "pictures"
    shows_pictures = True
    acts_after = True

    def __init__(
        self,
        conf: SplatsConfig,
        photographs: PhotographsConfig,
        train: TrainConfig,
        generator: np.random.Generator,
        plan: TrainingPlan,
    ) -> None:
        self.conf, self.train, self.plan = conf, train, plan
        self.weights = weights_of(LOSSES, (conf.form,), train, plan)
        self.exposure = Exposure() if plan.exposure.value else None
        self._exposure_rate = photographs.exposure_rate
        self.splats = Splats(conf)
        self.generator = generator
        self.extent = 1.0
        self.cameras: list[PinholeCamera] = []

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The Gaussians, `splats`, and the exposure of photographs if it is learned."""
        return {NETWORK: self.splats} | ({} if self.exposure is None else {EXPOSURE: self.exposure})

    @property
    def is_flat(self) -> bool:
        """Whether they are surfels."""
        return self.conf.form == SURFELS

    @property
    def level_set(self) -> LevelSet | None:
        """The fused distances of all cameras; None without a scene."""
        return fused(self._depth_of, tuple(self.cameras)) if self.cameras else None

    # the batch

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PictureSampler:
        """Whole photographs; initialises the Gaussians from the scene."""
        centres = scene.c2w[:, :3, 3]
        if self.exposure is not None:
            take_rows(self.exposure, {"affine": (scene.n_views, AFFINE)})
        self.extent = SPREAD * max(float(np.linalg.norm(centres - centres.mean(axis=0), axis=1).max()), 1.0)
        self.see(scene)
        points = first_points(scene, self.conf, self.plan.uses_masks, self.generator)
        require_seen(points, self.cameras, scene.name)
        self.splats.fill(from_points(points, self.conf, self.generator))
        return PictureSampler(scene, batch_size, generator)

    def see(self, views: Posed) -> None:
        """Take the cameras, from which depth maps are fused."""
        self.cameras = views.pinholes

    # what is computed

    def degree(self, step: int) -> int:
        """The degree of spherical harmonics at a step, which increases during training."""
        done = step / max(1.0, DEGREES_UNTIL * self.train.end_iter)
        return min(self.conf.degree, int(done * self.conf.degree))

    def _paint(self, camera: np.ndarray, size: tuple[int, int], step: int) -> Var:
        return rasterize(self.splats, self.conf, camera, size, self.degree(step), self.behind)

    def objective(self, batch: PictureBatch, noise: Any, step: int, precomputed: Any = None) -> Objective:
        """The published losses, averaged over the images."""
        sums: dict[str, list[Term]] = {}
        errors = []
        for picture in batch.pictures:
            height, width = picture.rgb.shape[:2]
            shown = self._paint(picture.camera, (width, height), step)
            rgb, target = shown[:, :, COLOR], picture.target(self.plan.uses_masks, self.behind)
            if self.exposure is not None:
                rgb = self.exposure.of_picture(rgb, picture.view)
            rendered = RenderedPicture(picture, shown, rgb, target, self)
            for term, value in terms_of(LOSSES, self.weights, rendered, step, self.train).items():
                sums.setdefault(term, []).append(value)
            errors.append((rgb.detach() - target).sqr().mean().reshape((1, 1)))
        terms = {
            name: Term(sum(v.total for v in values), sum(v.count for v in values), values[0].weight)
            for name, values in sums.items()
        }
        return Objective(terms, {"error": jt.concat(errors, dim=0)})

    # around a step

    def rates(self, step: int) -> dict[str, float]:
        """Learning rates of the published code, relative to train.learning_rate, which should be 1."""
        done = min(1.0, step / self.train.end_iter)
        rates = {"means": MEAN_RATE * (LAST_MEAN_RATE / MEAN_RATE) ** done * self.extent} | RATES
        factors = {f"{NETWORK}.{name}": rate for name, rate in rates.items()}
        return factors if self.exposure is None else factors | {EXPOSURE: self._exposure_rate}

    def after_step(self, parameters: Parameters, step: int) -> None:
        """Relocate and add Gaussians, and add SGLD noise to their centres."""
        step += 1
        if is_due(step, self.train.end_iter):
            values = {name: getattr(self.splats, name).numpy() for name in NAMES}
            change = relocated(values, self.conf, np.random.default_rng((self.train.seed, step)))
            if change is not None:
                parameters.keep(NETWORK, change[0])
                parameters.append(NETWORK, change[1])
        rate = NOISE * self.rates(step)[f"{NETWORK}.means"]
        self.splats.wander(step_of(rate, self.is_flat, self.train.seed, step))

    # what is saved

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """Adopt the numbers of Gaussians and photographs of a checkpoint."""
        if shapes[NETWORK].get("means", (0,))[0] < 1:
            raise ValueError("it contains no Gaussians")
        take_rows(self.splats, shapes[NETWORK])
        if self.exposure is not None and EXPOSURE in shapes:
            take_rows(self.exposure, shapes[EXPOSURE])

    def buffers(self) -> dict[str, np.ndarray]:
        """The form."""
        return {"flat": np.array([self.is_flat])}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        if bool(np.ravel(buffers.get("flat", self.is_flat))[0]) != self.is_flat:
            raise ValueError(f"its Gaussians do not have model.gaussians.form = {self.conf.form}")

    # what is shown

    def scalars(self, output: Mapping[str, Var], losses: Mapping[str, Var]) -> dict[str, Var]:
        """The losses, and the PSNR of the batch."""
        decibels = output["error"].mean().log() * (-10.0 / np.log(10.0))
        count = jt.array(np.array([self.splats.count], np.float32))
        return loss_scalars(losses) | {"Statistics/psnr": decibels, "Statistics/splats": count}

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """The number of Gaussians."""
        return f"{self.splats.count} splats"

    def view(self, rays: Rays, step: int) -> RayView:
        """A rendered whole image; raises ValueError for rays that are not one."""
        if not isinstance(rays, ImageRays):
            raise ValueError("Gaussians render whole images only")
        with jt.no_grad():
            return ray_view(*self._seen_by(rays.camera, step), rays)

    def _seen_by(self, camera: PinholeCamera, step: int) -> tuple[Var, np.ndarray]:
        """The image of a camera, and the camera's numbers."""
        numbers = numbers_of(camera.intrinsics, camera.c2w)
        return self._paint(numbers, (camera.width, camera.height), step), numbers

    def _depth_of(self, camera: PinholeCamera) -> tuple[np.ndarray, np.ndarray]:
        """Depth and opacity [H, W] of a camera."""
        with jt.no_grad():
            return depth_of(self._seen_by(camera, 0)[0])


def build(
    conf: GaussiansConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan
) -> GaussiansModel:
    """The model; raises ConfigError if weights are to be averaged."""
    if train.ema_decay > 0:
        raise ConfigError(
            f"train.ema_decay = {train.ema_decay:g}: Gaussians that are relocated have no average; set it to 0"
        )
    return GaussiansModel(conf.gaussians, conf.photographs, train, generator, plan)


TRUNCATION = 0.03  # working-frame units: truncation distance
SEEN = 0.2  # smallest opacity of a pixel with a surface; keeps half-covered pixels of outlines
FREE = 1.0  # in truncations: value of points in front of all surfaces or outside all images
# Weight of a camera with free space at a point, relative to one that sees a surface there. At grazing views a pixel
# more or less is free; a larger weight would erode the surface.
FREE_WEIGHT = 0.1
# Fraction of the cameras that must see free space at a point away from surfaces; otherwise it is solid. One wrong
# camera among thirty therefore creates no tunnel.
LOOKED_THROUGH = 0.03


Depths = tuple[np.ndarray, np.ndarray]  # depth and opacity [H, W] of an image


def fused(depth_of: Callable[[PinholeCamera], Depths], cameras: Sequence[PinholeCamera]) -> LevelSet:
    """The zero level set separates the space in front of the surfaces from that behind.

    The depth maps of all cameras are rendered at first use.
    """
    maps = cache(lambda: [depth_of(camera) for camera in cameras])
    return LevelSet(lambda points: _outward(points, cameras, maps()), 0.0, "the fused distance", background="masks")


def _outward(points: np.ndarray, cameras: Sequence[PinholeCamera], maps: Sequence[Depths]) -> np.ndarray:
    """The weighted mean of the truncated signed distances, [P, 1]; points that are occluded in all images are solid."""
    total, count, near, hidden = (np.zeros(len(points)) for _ in range(4))
    for camera, (depth, opacity) in zip(cameras, maps, strict=True):
        distance, inside = _truncated_distance(points.astype(np.float64), camera, depth, opacity)
        says = inside & (distance > -1.0)
        hidden += inside & ~says
        is_near = says & (distance < FREE)
        near += is_near
        weight = np.where(says, np.where(is_near, 1.0, FREE_WEIGHT), 0.0)
        total += weight * distance
        count += weight
    free = (count - near) / FREE_WEIGHT
    away = np.where((hidden > 0) & (free <= LOOKED_THROUGH * (free + hidden)), -1.0, FREE)
    distances = np.where(near > 0, total / np.maximum(count, 1.0), away)
    return (distances * TRUNCATION).astype(np.float32)[:, None]


def _truncated_distance(
    points: np.ndarray, camera: PinholeCamera, depth: np.ndarray, opacity: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Truncated distance, -1 to 1, and whether the point is in the image; -1 means occluded."""
    pixels, z = camera.project(points)
    x, y = np.rint(np.clip(pixels, -1, [camera.width, camera.height])).astype(np.int64).T
    inside = (z > 0) & (x >= 0) & (y >= 0) & (x < camera.width) & (y < camera.height)
    column, row = np.where(inside, x, 0), np.where(inside, y, 0)
    is_surface = opacity[row, column] > SEEN
    distance = np.where(is_surface, (depth[row, column] - z) / TRUNCATION, FREE)
    return np.clip(distance, -1.0, 1.0), inside
