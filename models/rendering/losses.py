"""The losses of all volume rendering methods, in one table, and their terms, pure functions of arrays.

A loss is a function of a rendering; it returns a `Term`, a sum and a count, or None if it does not apply. It may
evaluate the fields at further points (`rendered.method.fields`), or compare patches of photographs that the surface at
the rays warps (Geo-NeuS, arXiv 2205.15848). R rays, S samples.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

from data.pixels import eight_bits
from data.scenes.frustum import Cameras
from data.scenes.scene import Scene
from data.scenes.sparse import neighbours, region_points
from models.config.blocks import PatchesConfig, TrainConfig
from models.machine.backend import jt
from models.ops.hits import Hits, SurfaceHits, Tangent, second_differences, surface_hits, tangent_points
from models.ops.loss_sums import Rays, loss_sum
from models.ops.patches import CAMERA, Patches, patch_costs
from models.plan import Decision, TrainingPlan
from models.rendering.loss_table import BESIDE, EXPOSURE, MASKS, POINTS, Loss
from models.rendering.protocol import OfPacked, OfRays, OfSurface
from models.structs import MASK_THRESHOLD, Array, SurfaceOutput, Term, Var

MOST_COMPARED = 512  # rays of a batch: more would double the cost of a step, and surface points recur in later steps
WORST = 0.9  # cost of a pair without information: a random correlation of 0.1
LEAST_OPACITY = 0.5  # smallest accumulated weight of the region along a ray
LEAST_SLOPE = 0.1  # smallest derivative of the distance against the ray


class PatchComparison:
    """The photographs of a scene as inputs of the operation."""

    def __init__(self, scene: Scene, conf: PatchesConfig) -> None:
        cameras = scene.cameras
        others = neighbours(cameras, region_points(scene.points), conf.neighbours)
        views = np.concatenate([np.arange(len(others), dtype=np.int32)[:, None], others], axis=1)
        self.views = jt.array(views).stop_grad()
        width, height = cameras.sizes.max(axis=0).astype(int)
        images = np.zeros((len(cameras), height, width), np.uint8)
        for image, place in zip(scene.images, images, strict=True):
            grey = cv2.cvtColor(eight_bits(image), cv2.COLOR_RGB2GRAY)
            place[: grey.shape[0], : grey.shape[1]] = grey
        self.images = jt.array(images).stop_grad()
        self.cameras = jt.array(_rows(cameras)).stop_grad()
        self.layout = Patches(int(height), int(width), conf.neighbours, conf.radius, conf.best, WORST)

    def costs(self, rendering: SurfaceOutput, view: Array, step_size: float, every: int) -> tuple[Var, Var]:
        """The cost of the patch at the surface of each ray, and whether there is one (0 or 1), [R, 1] each.

        view: [R], the image of each ray; step_size: the length of an interval; every: of so many rays one is compared.
        """
        at, points, normals = surface_hits_of(rendering, step_size, every)
        is_hit = (at >= 0).unsqueeze(1)
        views = self.views[jt.array(view)]
        views = jt.ternary(is_hit.broadcast(views.shape), views, jt.full_like(views, -1))
        costs = patch_costs(points, normals, views, self.cameras, self.images, self.layout)
        return costs, is_hit.float32()


def surface_hits_of(rendering: SurfaceOutput, step_size: float, every: int) -> SurfaceHits:
    """Where the rays of packed samples, `step_size` apart, meet the surface, one ray in `every`."""
    samples, geometry = rendering.samples, rendering.geometry
    sizes = Hits(samples.positions.shape[0], every, LEAST_OPACITY, step_size, LEAST_SLOPE)
    places = samples.positions, samples.directions, samples.offsets
    return surface_hits(geometry.sdf, geometry.gradient, rendering.region_weights, *places, sizes)


def _rows(cameras: Cameras) -> np.ndarray:
    """Cameras as in `ops.patches`, float32 [V, CAMERA]."""
    rows = np.zeros((len(cameras), CAMERA))
    for row, (intrinsics, c2w, size) in zip(rows, cameras, strict=True):
        turned, place = c2w[:3, :3], c2w[:3, 3]
        projection = intrinsics @ np.column_stack([turned.T, -turned.T @ place])
        row[:] = np.concatenate([projection.ravel(), (turned @ np.linalg.inv(intrinsics)).ravel(), place, size])
    return rows.astype(np.float32)


COUNT_EPS = 1e-5  # keeps the mean over an empty mask or an empty sphere finite
MASK_NOISE = 8.0 / 255.0  # of JPEG masks around the object


def mean_term(
    kind: str, values: Var, targets: Var | None = None, counts: Var | None = None, rays: Rays | None = None
) -> Term:
    """The mean of a loss over the rows that count; see `models.ops.loss_sums`."""
    total, count = loss_sum(kind, values, targets, counts, rays)
    return Term(total, count, margin=COUNT_EPS)


def robust_counts(counts: Var, rgb: Var, target: Var, scale: float) -> Var:
    """counts [R, 1] of rays, less where a channel of the colour [R, 3] is off by `scale` or more, as by a highlight.

    The weight of Cauchy's loss of the greatest difference d (Holland and Welsch, 1977): 1 / (1 + (d / scale)^2).
    """
    off = (rgb - target).abs().max(dim=1, keepdims=True).detach() / scale
    return counts / (1.0 + off * off)


def squared_term(rgb: Var, target: Var, counts: Var) -> Term:
    """Mean of (rgb - target)^2 over channels and counted rays."""
    total, count = loss_sum("SQUARED", rgb, target, counts)
    return Term(total, count * 3.0, margin=COUNT_EPS * 3.0)


def mask_term(opacity: Var, mask: Var, counts: Var | float = 1.0) -> Term:
    """Binary cross-entropy of opacities, which are probabilities already, against a mask; both [R, 1].

    counts [R, 1]: 1 where a ray counts, else 0; 1.0 where all do.
    """
    if isinstance(counts, float):
        return Term(loss_sum("CROSS_ENTROPY", opacity, mask)[0], float(opacity.shape[0]))
    return mean_term("CROSS_ENTROPY", opacity, mask, counts)


def binary_mask(mask: Var | None, rays: int) -> Var:
    """The 0/1 mask [R, 1] of a mask in [0, 1]; all ones for None."""
    return jt.ones((rays, 1)) if mask is None else (mask > MASK_THRESHOLD).float32()


def masked_target(rgb: Var, mask: Var, behind: np.ndarray | None) -> Var:
    """Target colours [..., 3]: those of the photograph in the mask [..., 1], else the background, None for black.

    Colours at the borders of an alpha channel are composited already, so a small value is enough.
    """
    background = jt.zeros(3) if behind is None else jt.array(behind.astype(np.float32))
    return jt.ternary((mask > MASK_NOISE).broadcast(rgb.shape), rgb, background.broadcast(rgb.shape))


def masked_psnr(rgb: Var, target: Var, mask: Var) -> Var:
    """Peak signal-to-noise ratio in dB over the rays in the mask."""
    return squared_term(rgb, target, mask).mean().log() * (-10.0 / math.log(10.0))


def masked_mean(values: Var, mask: Var) -> Var:
    """Mean of [R, 1] over the rays in the mask."""
    return (values * mask).sum() / (mask.sum() + COUNT_EPS)


def color(rendered: OfRays) -> Term:
    """Absolute error over channels and counted rays, by the number of these rays (NeuS, section 3.4)."""
    return mean_term("ABSOLUTE", rendered.rendering.rgb, rendered.target, rendered.counts)


def color_mse(rendered: OfRays) -> Term:
    """Mean squared error over channels and counted rays (NeRF, eq. 6)."""
    return squared_term(rendered.rendering.rgb, rendered.target, rendered.counts)


def coarse_mse(rendered: OfRays) -> Term | None:
    """The same of the coarse pass."""
    coarse = rendered.rendering.samples.coarse
    return None if coarse is None else squared_term(coarse.rgb, rendered.target, rendered.counts)


def eikonal(rendered: OfSurface) -> Term:
    """Mean of (|gradient| - 1)^2 near the unit sphere (NeuS, section 3.4)."""
    geometry, samples = rendered.rendering.geometry, rendered.rendering.samples
    return mean_term("UNIT_LENGTH", geometry.gradient, counts=samples.near_sphere)


def mask(rendered: OfRays) -> Term | None:
    """Binary cross-entropy of opacities against masks (NeuS, section 3.4); of both passes if there are two."""
    if rendered.mask is None:
        return None
    rendering = rendered.rendering
    term = mask_term(rendering.opacity, rendered.mask, rendering.has_any)
    if rendering.samples.coarse is None:
        return term
    coarse = mask_term(rendering.samples.coarse.opacity, rendered.mask)
    return Term((term.total + coarse.total) * 0.5, term.count)


def free_space(rendered: OfPacked) -> Term | None:
    """Mean depth inside the object of the samples on rays that do not hit it.

    The mask loss constrains the same rays, but has no gradient once a ray is opaque.
    """
    is_free = rendered.method.free_rays(rendered.batch)
    if is_free is None:
        return None
    counts, rays = jt.array(is_free).float32(), rendered.batch.rays_of_samples()
    return mean_term("BELOW_ZERO", rendered.rendering.geometry.sdf, None, counts, rays)


def sfm_points(rendered: OfPacked) -> Term | None:
    """Mean distance of SfM points from the surface (Geo-NeuS, arXiv 2205.15848, eq. 8)."""
    if rendered.batch.anchors is None:
        return None
    flags = rendered.batch.is_anchor()
    return mean_term("MAGNITUDE", rendered.rendering.geometry.sdf, None, flags)


def patches(rendered: OfPacked) -> Term | None:
    """Mean cost of patches compared across images (Geo-NeuS, arXiv 2205.15848, eq. 12)."""
    comparison, batch = rendered.method.patches, rendered.batch
    if comparison is None or batch.every is None:
        return None
    costs, is_compared = comparison.costs(rendered.rendering, batch.view, batch.step_size, batch.every)
    return Term(costs.sum(), is_compared.sum(), margin=COUNT_EPS)


def curvature(rendered: OfPacked) -> Term:
    """Mean curvature of the surface where rays meet it, along one tangent per ray: |f(x + h t) + f(x - h t) - 2 f(x)| /
    h^2 in 1/radii (after Neuralangelo, arXiv 2306.03092, eq. 7, which adds up the axes at every sample).

    h is the step size along rays, which shrinks during the training. A width of cells of the finest level would only
    smooth these; bumps of the coarser levels would remain. The weight falls linearly to 0: a constant one rounds what
    is finer than the bumps, such as the studs of lego.
    """
    rendering, step_size = rendered.rendering, rendered.batch.step_size
    if rendering.samples.positions.shape[0] == 0:  # a part of a batch, without a row that could be read
        return Term(jt.zeros(1), jt.zeros(1), margin=COUNT_EPS)
    at, _, normals = surface_hits_of(rendering, step_size, every=1)
    x, y, z = rendered.generator().normal(size=3).tolist()  # the same for all parts of a batch
    tangent = Tangent(x, y, z, step_size)
    around = tangent_points(at, normals.detach(), rendering.samples.positions, tangent)
    assert rendered.sdf is not None  # of every surface
    distances = rendered.sdf.values(around)
    total, count = second_differences(at, rendering.geometry.sdf, distances, step_size)
    return Term(total, count, margin=COUNT_EPS)


def exposure(rendered: OfRays) -> Term | None:
    """Mean square of the difference of exposures from the identity."""
    if rendered.method.exposure is None:
        return None
    # Divided equally over the parts of the batch, so that they add up to the whole.
    entries = float(len(rendered.batch))
    size = rendered.method.exposure.changes().sqr().mean() * entries
    return Term(size, entries)


def _curvature_weight(weight: float, train: TrainConfig, plan: TrainingPlan) -> Decision:
    """TF32 rounds by more than a second difference over the final step: emulated, 2.8 of 1.7 1/radii."""
    if train.tf32:
        return Decision(0.0, "TF32 rounds second differences away", "train.tf32", is_forced=True)
    return Decision(weight, is_forced=True)


OF_SURFACES, OF_RADIANCE = ("neus", "fast_neus"), ("nerf", "fast_nerf")
FAST = ("fast_neus",)
LOSSES = {
    "color": Loss(color, OF_SURFACES),
    "color_mse": Loss(color_mse, OF_RADIANCE),
    "coarse_mse": Loss(coarse_mse, ("nerf",)),
    "eikonal": Loss(eikonal, OF_SURFACES, key="igr_weight"),
    "mask": Loss(mask, when=MASKS),
    "exposure": Loss(exposure, when=EXPOSURE),
    "free": Loss(free_space, FAST, when=BESIDE),
    "points": Loss(sfm_points, FAST, when=POINTS),
    "patches": Loss(patches, FAST),
    "curvature": Loss(curvature, FAST, falls=True, decide=_curvature_weight),
}
