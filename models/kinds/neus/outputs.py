"""What NeuS's renderer hands on. R rays, N sections inside the sphere, M = N + sections outside it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from models.rendering.sections import expected_distance
from models.structs import OF_THE_BATCH, RayView, Var


@dataclass(frozen=True)
class RenderOutput:
    """What one batch of rays shows. All fields are differentiable but `depths` and the two spheres."""

    rgb: Var  # [R, 3]
    opacity: Var  # [R, 1], sum of the weights
    weights: Var  # [R, M], of each section, front to back
    depths: Var  # [R, N], section starts along the unit direction
    midpoints: Var  # [R, N], section middles along the unit direction
    sdf_gradient: Var  # [R, N, 3], at the section middles
    cdf: Var  # [R, N], Phi_s(sdf) at the section starts
    inside_sphere: Var  # [R, N], 1 where the section's middle lies in the unit sphere
    near_sphere: Var  # [R, N], 1 where it lies within the slightly larger sphere of the eikonal loss
    inv_s: Var = field(metadata=OF_THE_BATCH)  # [1], sharpness of the density: 1/s of the paper


@dataclass(frozen=True)
class Comparison:
    """A rendering beside what the photograph shows."""

    render: RenderOutput
    target: Var  # [R, 3]
    mask: Var  # [R, 1], 0 or 1


def ray_view(output: RenderOutput) -> RayView:
    """What a rendering without gradients shows: colours, background included; the rest of what lies in the sphere."""
    weights = output.weights.numpy()[:, : output.depths.shape[1]] * output.inside_sphere.numpy()
    opacity = weights.sum(axis=1, keepdims=True)
    normal = np.einsum("rn,rnc->rc", weights, output.sdf_gradient.numpy())
    distance = expected_distance(weights, output.midpoints.numpy(), opacity)
    return RayView(output.rgb.numpy(), *(array.astype(np.float32) for array in (normal, distance, opacity)))
