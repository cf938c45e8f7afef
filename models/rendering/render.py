"""From pixels to a loss; the entry point for reading the code.

    batch --estimator--> RaySamples --fields--> alpha, colour --volume rendering--> RenderOutput --losses--> terms

Surfaces are those of NeuS (arXiv 2106.10689), radiance fields those of NeRF (arXiv 2003.08934). Each formula is defined
once, in plain Jittor, in ops/volrend.py, with a native operation that computes the same. R rays, S samples.
"""

from __future__ import annotations

import numpy as np

from data.rays import Rays
from models.fields.protocol import BoundDistance, ColorField
from models.ops.volrend import alpha_from_density, alpha_from_sdf, composite, over_background, ray_weights
from models.rendering.protocol import RadianceMethod, Rendered, SurfaceMethod, VolumeMethod
from models.structs import (
    FieldOutput,
    Noise,
    Objective,
    RadianceOutput,
    RayBatch,
    RaySamples,
    RenderOutput,
    SampleRequest,
    SurfaceOutput,
    Var,
)


def surface_loss(
    method: SurfaceMethod, batch: RayBatch, noise: Noise | None, step: int, precomputed: Var | None = None
) -> Objective:
    """The training loss of a surface: |C - C_image| + 0.1 eikonal + mask terms (NeuS, section 3.4), and others.

    Args:
        method: estimator, fields, losses and their weights, see `methods.neus.SurfaceModel`.
        noise: jitter of the samples; None for none.
        precomputed: what the estimator computed before, without gradients; None to compute it here.
    """
    fields = method.fields
    sdf, inv_s = fields.sdf.bind(), fields.sharpness()
    request = SampleRequest(batch.rays, batch, noise, sdf.distance, precomputed=precomputed)
    samples = method.estimator.sample(request)
    geometry = sdf.evaluate(samples.positions)  # f(x), its gradient and feature
    rendering = render_surface(fields.color, inv_s, samples, geometry, method.cos_anneal_ratio(step), method.behind)
    return _compared(method, batch, rendering, step, sdf)


def render_surface(
    color: ColorField, inv_s: Var, samples: RaySamples, geometry: FieldOutput, ratio: float, behind: np.ndarray | None
) -> SurfaceOutput:
    """Colours of rays through a signed-distance field, which has the values `geometry` at the samples.

    ratio: of annealing, see `ops.volrend.annealed_cos`; behind: colour [3] behind everything, None for black.
    """
    rgb = color(samples.positions, geometry.gradient, samples.directions, geometry.feature)  # c(x, n, v, feature)
    alpha = surface_alpha(geometry, samples.directions, samples.deltas, inv_s, ratio)
    return SurfaceOutput(*_composited(samples, alpha, rgb, behind), geometry, inv_s)


def surface_alpha(geometry: FieldOutput, directions: Var, deltas: Var, inv_s: Var, ratio: float) -> Var:
    """Opacities [S, 1] of intervals of length `deltas` [S, 1] in the direction of their rays [S, 3]."""
    cos = (directions * geometry.gradient).sum(dim=1, keepdims=True)  # slope of f along the ray
    # alpha_i = max((Phi_s(f_i) - Phi_s(f_i+1)) / Phi_s(f_i), 0) (eq. 13), with f_i, f_i+1 = f(x) -+ slope * delta / 2
    return alpha_from_sdf(geometry.sdf, cos, deltas, inv_s, ratio)


def radiance_loss(
    method: RadianceMethod, batch: RayBatch, noise: Noise | None, step: int, precomputed: None = None
) -> Objective:
    """The training loss of a radiance field; see `surface_loss`."""
    rendering = render_passes(method, batch.rays, noise, method.behind, batch)
    return _compared(method, batch, rendering, step)


def render_passes(
    method: RadianceMethod, rays: Rays, noise: Noise | None, behind: np.ndarray | None, batch: RayBatch | None = None
) -> RenderOutput:
    """Colours of rays, of a batch or of an image; the estimator may choose samples by those of the coarse field."""
    fine, coarse = method.fields.fine, method.fields.coarse

    def render_coarse(samples: RaySamples) -> RenderOutput:
        assert coarse is not None  # a method whose estimator uses it has one
        return render_radiance(coarse.evaluate(samples.positions, samples.directions), samples, behind)

    samples = method.estimator.sample(SampleRequest(rays, batch, noise, coarse=render_coarse))
    return render_radiance(fine.evaluate(samples.positions, samples.directions), samples, behind)


def render_radiance(radiance: RadianceOutput, samples: RaySamples, behind: np.ndarray | None) -> RenderOutput:
    """Colours of rays through a radiance field, which has the values `radiance` at the samples."""
    alpha = alpha_from_density(radiance.density, samples.deltas)  # 1 - exp(-sigma delta) (NeRF, eq. 3)
    return RenderOutput(*_composited(samples, alpha, radiance.rgb, behind))


def _composited(
    samples: RaySamples, alpha: Var, rgb: Var, behind: np.ndarray | None
) -> tuple[Var, Var, Var, RaySamples, Var]:
    """The values of a `RenderOutput` from the opacities and colours of samples, including those of the background."""
    offsets, is_dense = samples.offsets, samples.per_ray > 0
    if samples.background is not None:
        alpha, rgb, offsets = samples.background.joined(alpha, rgb)
    weights, opacity = ray_weights(alpha, offsets, is_dense)  # w_i = alpha_i prod_j<i (1 - alpha_j) (eq. 10)
    color = composite(weights, rgb, offsets)  # C = sum w_i c_i (eq. 3)
    color = over_background(color, opacity, behind)  # + (1 - sum w_i) background
    return color, opacity, weights, samples, offsets


def _compared(
    method: VolumeMethod, batch: RayBatch, rendering: RenderOutput, step: int, sdf: BoundDistance | None = None
) -> Objective:
    """The terms of the method's losses for the rendering and the pixels; rays without samples are not counted."""
    targets = method.targets(batch)
    counts = targets.counts * rendering.has_any
    exposed = method.exposed(rendering, batch)
    rendered = Rendered(exposed, batch, targets.colors, counts, targets.mask, method, step, sdf)
    return Objective(method.terms(rendered), method.scalar_inputs(rendered))
