"""The losses of all volume rendering methods, in one table. A method lists the names of its losses.

A loss is a function of a rendering; it returns a `Term`, a sum and a count, or None if it does not apply. It may
evaluate the fields at further points (`rendered.method.fields`). R rays, S samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from models.config.blocks import TrainConfig
from models.machine.backend import jt
from models.ops.elementwise import hard_clip, length, magnitude
from models.rendering.patches import surface_of
from models.rendering.protocol import Method, Output, PackedMethod, PackedRays, RayBatch, SurfaceMethod
from models.structs import MASK_THRESHOLD, RenderOutput, SurfaceOutput, Term, Var

OfBatch = TypeVar("OfBatch", bound=RayBatch)
OfMethod = TypeVar("OfMethod", bound=Method)

COUNT_EPS = 1e-5  # keeps the mean over an empty mask or an empty sphere finite
# Opacities are clamped this far from 0 and 1 in the mask loss; clamped rays have no gradient (as published).
OPACITY_MARGIN = 1e-3
# inv_s from which patches count, fully from twice this value on. Without a bound, `jug_on_table` of the gallery ended
# without a surface; it has 13 when the patches begin, the fox and the DTU scans 30 and more.
SHARP = 10.0
MASK_NOISE = 8.0 / 255.0  # of JPEG masks around the object


@dataclass(frozen=True)
class Rendered(Generic[Output, OfBatch, OfMethod]):
    """A batch, its rendering and its targets."""

    rendering: Output
    batch: OfBatch
    target: Var  # [R, 3], colours
    counts: Var  # [R, 1], 1 if the colour of a ray counts, else 0
    mask: Var | None  # [R, 1], target opacity of a ray; None if unknown
    method: OfMethod
    step: int  # finished training steps

    def generator(self) -> np.random.Generator:
        """Random numbers for a loss: the same for all chunks and processes of a step, and in a resumed training."""
        return np.random.default_rng((self.method.train.seed, self.step))


# What a loss needs: any method, one with a signed distance, or one with packed samples.
OfRays = Rendered[RenderOutput, RayBatch, Method]
OfSurface = Rendered[SurfaceOutput, RayBatch, SurfaceMethod]
OfPacked = Rendered[SurfaceOutput, PackedRays, PackedMethod]
Loss = Callable[[Any], Term | None]


def color(rendered: OfRays) -> Term:
    """Absolute error over channels and counted rays, by the number of these rays (NeuS, section 3.4)."""
    return color_term(rendered.rendering.rgb, rendered.target, rendered.counts)


def color_mse(rendered: OfRays) -> Term:
    """Mean squared error over channels and counted rays (NeRF, eq. 6)."""
    return squared_term(rendered.rendering.rgb, rendered.target, rendered.counts)


def coarse_mse(rendered: OfRays) -> Term | None:
    """The same of the coarse pass."""
    coarse = rendered.rendering.coarse
    return None if coarse is None else squared_term(coarse.rgb, rendered.target, rendered.counts)


def eikonal(rendered: OfSurface) -> Term:
    """Mean of (|gradient| - 1)^2 near the unit sphere (NeuS, section 3.4)."""
    rendering, near = rendered.rendering, rendered.rendering.samples.near_sphere
    counts = jt.ones((rendering.geometry.gradient.shape[0],)) if near is None else near.reshape((-1,))
    return eikonal_term(rendering.geometry.gradient, counts, rendered.method.loss_weight("eikonal"))


def mask(rendered: OfRays) -> Term | None:
    """Binary cross-entropy of opacities against masks (NeuS, section 3.4); of both passes if there are two."""
    if rendered.mask is None:
        return None
    rendering, weight = rendered.rendering, rendered.method.loss_weight("mask")
    term = mask_term(rendering.opacity, rendered.mask, weight, rendering.rays.has_any)
    if rendering.coarse is None:
        return term
    coarse = mask_term(rendering.coarse.opacity, rendered.mask, weight)
    return Term((term.total + coarse.total) * 0.5, term.count, weight)


def free_space(rendered: OfPacked) -> Term | None:
    """Mean depth inside the object of the samples on rays that do not hit it.

    The mask loss constrains the same rays, but has no gradient once a ray is opaque.
    """
    is_free = rendered.method.free_rays(rendered.batch)
    if is_free is None:
        return None
    flags = rendered.batch.of_rays(is_free)
    inside = (jt.maximum(-rendered.rendering.geometry.sdf, 0.0) * flags).sum()
    return Term(inside, flags.sum(), rendered.method.loss_weight("free"), COUNT_EPS)


def sfm_points(rendered: OfPacked) -> Term | None:
    """Mean distance of SfM points from the surface (Geo-NeuS, arXiv 2205.15848, eq. 8)."""
    if rendered.batch.anchors is None:
        return None
    flags = rendered.batch.is_anchor()
    distances = (magnitude(rendered.rendering.geometry.sdf) * flags).sum()
    return Term(distances, flags.sum(), rendered.method.loss_weight("points"), COUNT_EPS)


def patches(rendered: OfPacked) -> Term | None:
    """Mean cost of patches compared across images (Geo-NeuS, arXiv 2205.15848, eq. 12).

    It counts from an inv_s of SHARP on. Patches lie on the zero level set; while the density is not concentrated there,
    a field without a surface, and so without patches, would have the lowest loss.
    """
    comparison, batch = rendered.method.patches_at(rendered.step), rendered.batch
    if comparison is None or batch.every is None:
        return None
    costs, is_compared = comparison.costs(rendered.rendering, batch.view, float(batch.step[0]), int(batch.every[0]))
    is_sharp = hard_clip(rendered.rendering.inv_s * (1.0 / SHARP) - 1.0, 0.0, 1.0).stop_grad()
    return Term((costs * is_sharp).sum(), is_compared.sum(), rendered.method.loss_weight("patches"), COUNT_EPS)


def curvature(rendered: OfPacked) -> Term | None:
    """Mean curvature of the surface where rays meet it, along one tangent per ray: |f(x + h t) + f(x - h t) - 2 f(x)| /
    h^2 in 1/radii (after Neuralangelo, arXiv 2306.03092, eq. 7, which adds up the axes at every sample).

    h is the step size along rays, which shrinks during the training. A width of cells of the finest level would only
    smooth these; bumps of the coarser levels would remain. The weight falls linearly to 0: a constant one rounds what
    is finer than the bumps, such as the studs of lego.
    """
    weight = rendered.method.loss_weight("curvature") * (1.0 - rendered.step / rendered.method.train.end_iter)
    if weight <= 0.0:
        return None
    rendering, step = rendered.rendering, float(rendered.batch.step[0])
    if rendering.samples.positions.shape[0] == 0:  # a part of a batch, without a row that could be read
        return Term(jt.zeros(1), jt.zeros(1), weight, COUNT_EPS)
    hits = surface_of(rendering, step, every=1)
    is_hit, row = (hits.at >= 0).unsqueeze(1).float32(), jt.maximum(hits.at, 0)
    points, distances = rendering.samples.positions[row].detach(), rendering.geometry.sdf[row]
    # Each normal times one random vector; the same for all parts of a batch.
    crossed = np.cross(np.eye(3), rendered.generator().normal(size=3)).astype(np.float32)
    tangents = jt.matmul(hits.normals.detach(), jt.array(crossed))
    moves = step * tangents / length(tangents, keepdims=True)
    around = jt.concat([points + moves, points - moves], dim=0).stop_grad()
    ahead, behind = rendered.method.fields.sdf.at_weights().evaluate(around).sdf.chunk(2, dim=0)
    second = (ahead + behind - 2.0 * distances) * step**-2.0
    return Term((magnitude(second) * is_hit).sum(), is_hit.sum(), weight, COUNT_EPS)


def exposure(rendered: OfRays) -> Term | None:
    """Mean square of the difference of exposures from the identity."""
    if rendered.method.exposure is None:
        return None
    # Divided equally over the parts of the batch, so that they add up to the whole.
    entries = float(len(rendered.batch))
    size = rendered.method.exposure.changes().sqr().mean() * entries
    return Term(size, entries, rendered.method.loss_weight("exposure"))


LOSSES: dict[str, Loss] = {
    "color": color,
    "color_mse": color_mse,
    "coarse_mse": coarse_mse,
    "eikonal": eikonal,
    "mask": mask,
    "free": free_space,
    "points": sfm_points,
    "patches": patches,
    "curvature": curvature,
    "exposure": exposure,
}


# The losses of the methods; terms are omitted if their loss returns None.
NEUS_LOSSES = ("color", "eikonal", "mask", "exposure")
FAST_NEUS_LOSSES = (*NEUS_LOSSES, "free", "points", "patches", "curvature")
NERF_LOSSES = ("color_mse", "coarse_mse", "mask", "exposure")
FAST_NERF_LOSSES = ("color_mse", "mask", "exposure")


def terms_of(names: Sequence[str], rendered: Rendered) -> dict[str, Term]:
    """The terms of the losses of these names that apply."""
    found = {name: LOSSES[name](rendered) for name in names}
    return {name: term for name, term in found.items() if term is not None}


def color_term(rgb: Var, target: Var, counts: Var) -> Term:
    """|rgb - target| summed over channels and counted rays, divided by their number (3 times the mean)."""
    return Term((magnitude(rgb - target) * counts).sum(), counts.sum(), margin=COUNT_EPS)


def squared_term(rgb: Var, target: Var, counts: Var) -> Term:
    """Mean of (rgb - target)^2 over channels and counted rays."""
    return Term(((rgb - target).sqr() * counts).sum(), counts.sum() * 3.0, margin=COUNT_EPS * 3.0)


def eikonal_term(gradient: Var, counts: Var, weight: float = 1.0) -> Term:
    """Mean of (|gradient| - 1)^2 where counts [...] is 1; gradient [..., 3]."""
    return Term((counts * (length(gradient) - 1.0).sqr()).sum(), counts.sum(), weight, COUNT_EPS)


def mask_term(opacity: Var, mask: Var, weight: float = 1.0, counts: Var | float = 1.0) -> Term:
    """Binary cross-entropy of opacities, which are probabilities already, against a mask; both [R, 1].

    counts [R, 1]: 1 where a ray counts, else 0; 1.0 where all do.
    """
    probability = hard_clip(opacity, OPACITY_MARGIN, 1.0 - OPACITY_MARGIN)
    likelihood = mask * probability.log() + (1.0 - mask) * (1.0 - probability).log()
    if isinstance(counts, float):
        return Term(-likelihood.sum(), float(opacity.shape[0]), weight)
    return Term(-(likelihood * counts).sum(), counts.sum(), weight, COUNT_EPS)


def binary_mask(mask: Var | None, rays: int, conf: TrainConfig) -> Var:
    """The 0/1 mask [R, 1] of the losses: all ones without masks, or if they are not used."""
    if mask is None or conf.mask_weight == 0.0:
        return jt.ones((rays, 1))
    return (mask > MASK_THRESHOLD).float32()


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
