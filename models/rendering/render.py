"""From pixels to a loss. Open this file first.

    batch --estimator--> RaySamples --fields--> alpha, colour --volrend--> RenderOutput --losses--> terms

Surfaces are NeuS's (arXiv 2106.10689), radiance fields NeRF's (arXiv 2003.08934). R rays, S samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from models.fields.protocol import ColorField, DistanceAtWeights, DistanceField
from models.rendering import volrend
from models.rendering.losses import Rendered, terms_of
from models.structs import FieldOutput, Objective, RadianceOutput, RaySamples, RenderOutput, StepContext, Var


@dataclass(frozen=True)
class SurfaceFields:
    """The networks of a surface."""

    sdf: DistanceField
    color: ColorField
    sharpness: Callable[[], Var]  # inv_s [1], 1/s of the paper

    def at_weights(self) -> SurfaceAtWeights:
        """The fields bound to their current parameters."""
        return SurfaceAtWeights(self.sdf.at_weights(), self.color, self.sharpness())


@dataclass(frozen=True)
class SurfaceAtWeights:
    """The same, bound to their parameters."""

    sdf: DistanceAtWeights
    color: ColorField
    inv_s: Var  # [1]


def surface_loss(method: Any, batch: Any, noise: Any, context: StepContext, precomputed: Any = None) -> Objective:
    """The training loss of a surface: pixels of `batch` against their rendering.

    Args:
        method: a `SurfaceModel`: estimator, fields and losses.
        noise: jitter of the samples; None for none.
        precomputed: by the estimator; None to compute it here.
    """
    fields, behind = method.fields.at_weights(), context.background_rgb
    samples = method.estimator.sample(batch, fields.sdf.distance, noise, precomputed)
    rendering = render_surface(fields, samples, method.cos_anneal_ratio(context.step), method.behind(behind))
    rendered = _compared(method, rendering, batch, behind, context.step)
    return Objective(terms_of(method.losses, rendered), method.scalar_inputs(rendered))


def render_surface(
    fields: SurfaceAtWeights, samples: RaySamples, ratio: float, behind: np.ndarray | None
) -> RenderOutput:
    """Colours of rays through a signed-distance field (NeuS, eqs. 3, 10 and 13).

    ratio: see `ops.volrend.annealed_cos`; behind: colour [3] behind everything, None for black.
    """
    geometry = fields.sdf.evaluate(samples.positions)
    rgb = fields.color(samples.positions, geometry.gradient, samples.directions, geometry.feature)
    cos = (samples.directions * geometry.gradient).sum(dim=1, keepdims=True)
    alpha = volrend.alpha_from_sdf(geometry.sdf, cos, samples.deltas, fields.inv_s, ratio)
    return _composited(samples, alpha, rgb, behind, geometry, fields.inv_s)


def radiance_loss(method: Any, batch: Any, noise: Any, context: StepContext, precomputed: None = None) -> Objective:
    """The training loss of a radiance field; see `surface_loss`."""
    behind = context.background_rgb
    rendering = render_passes(method, batch, noise, behind)
    rendered = _compared(method, rendering, batch, behind, context.step)
    return Objective(terms_of(method.losses, rendered), method.scalar_inputs(rendered))


def render_passes(method: Any, batch: Any, noise: Any, behind: np.ndarray | None) -> RenderOutput:
    """Colours of a batch; the weights of a coarse field, where there is one, say where the other is sampled."""
    samples, coarse = method.estimator.sample(batch, noise), None
    if method.coarse is not None:
        found = method.coarse.at_weights().evaluate(samples.positions, samples.directions)
        coarse = render_radiance(found, samples, behind)
        samples = method.estimator.refine(batch, samples, coarse.weights, noise)
    found = method.field.at_weights().evaluate(samples.positions, samples.directions)
    return replace(render_radiance(found, samples, behind), coarse=coarse)


def render_radiance(found: RadianceOutput, samples: RaySamples, behind: np.ndarray | None) -> RenderOutput:
    """Colours of rays through a radiance field that was evaluated at the samples (NeRF, eq. 3)."""
    alpha = volrend.alpha_from_density(found.density, samples.deltas)
    return _composited(samples, alpha, found.rgb, behind)


def _compared(method: Any, rendering: RenderOutput, batch: Any, behind: np.ndarray | None, step: int) -> Rendered:
    """A rendering and its targets; rays without samples do not count."""
    target, counts, mask = method.targets(batch, behind)
    counts = counts * rendering.rays.has_any
    return Rendered(method.exposed(rendering, batch), batch, target, counts, mask, method, step)


def _composited(
    samples: RaySamples,
    alpha: Var,
    rgb: Var,
    behind: np.ndarray | None,
    geometry: FieldOutput | None = None,
    inv_s: Var | None = None,
) -> RenderOutput:
    """alpha -> transmittance -> weights -> colour, the background's samples included."""
    rays = samples.rays
    if samples.background is not None:
        alpha, rgb, rays = samples.background.joined(alpha, rgb, samples)
    weights, opacity = volrend.weights_from_alpha(alpha, rays)
    color = volrend.over_background(volrend.composite(weights, rgb, rays), opacity, behind)
    return RenderOutput(color, opacity, weights, samples, rays, geometry, inv_s)
