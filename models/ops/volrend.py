"""Volume rendering as a small algebra: opacity of sections, weights, sums. Pure functions on Vars, no randomness.

R rays, N sections ordered from the camera outwards (NeuS, arXiv 2106.10689, eqs. 3, 10 and 13; the constants are those
of https://github.com/Totoro97/NeuS/blob/6e0a230/models/renderer.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.elementwise import hard_clip, length, softplus
from models.ops.kernel import Kernel
from models.ops.network import shapes32
from models.ops.scan import exclusive_cumprod
from models.ops.source import Source
from models.structs import Var

# Added to numerator and denominator of alpha: deep inside an object both CDFs vanish, and without it alpha would be
# 0/0 there; with it the inside counts as opaque. Outside it lends each empty section an opacity of 1e-5.
ALPHA_EPS = 1e-5
# Added to each factor of the transmittance, so that an opaque section (alpha = 1) leaves a gradient behind it.
TRANSMITTANCE_EPS = 1e-7
# Half the change of the sdf along a section counts up to this: by then either CDF is 0 or 1, and an infinite product
# would make the gradient of inv_s infinity times zero.
LARGEST_CHANGE = 1e30


def annealed_cos(cos: Var, ratio: float) -> Var:
    """The non-positive slope of the sdf along a ray, blended while training starts.

    Args:
        cos: direction . sdf gradient, any shape.
        ratio: 0 at the start, where back faces still get a gradient; 1 later, where only front faces count.
    """
    soft = jt.maximum(-cos * 0.5 + 0.5, 0.0)
    hard = jt.maximum(-cos, 0.0)
    return -(soft * (1.0 - ratio) + hard * ratio)


def section_cdfs(sdf: Var, slope: Var, lengths: Var, inv_s: Var | float) -> tuple[Var, Var]:
    """Phi_s at both ends of sections whose middle has `sdf` and along which it changes by `slope` per length.

    All [R, N]; inv_s a number or a Var of shape [1]. Returns (entry, exit), with entry >= exit for slope <= 0.
    """
    half = hard_clip(slope * lengths * 0.5, -LARGEST_CHANGE, LARGEST_CHANGE)
    return ((sdf - half) * inv_s).sigmoid(), ((sdf + half) * inv_s).sigmoid()


def alpha_from_cdfs(entry_cdf: Var, exit_cdf: Var) -> Var:
    """Opacity of sections (eq. 13): (Phi(entry) - Phi(exit)) / Phi(entry), not clipped."""
    return (entry_cdf - exit_cdf + ALPHA_EPS) / (entry_cdf + ALPHA_EPS)


def alpha_from_density(density: Var, lengths: Var) -> Var:
    """Opacity of sections of a radiance field (NeRF, eq. 3): 1 - exp(-softplus(density) * length)."""
    return 1.0 - (-softplus(density) * lengths).exp()


@dataclass(frozen=True)
class RayWeights:
    """The layout of the weights of rays."""

    sections: int  # N
    transmittance_eps: float = TRANSMITTANCE_EPS


SOURCE = Source("volrend.h", (RayWeights,))


def _weights_reference(alpha: Var) -> Var:
    """w_i = alpha_i T_i with T_i = prod_{j<i} (1 - alpha_j): [R, N] -> [R, N]. Differentiable, alpha = 1 included."""
    return alpha * exclusive_cumprod(1.0 - alpha + TRANSMITTANCE_EPS)


def _weights_native(alpha: Var) -> Var:
    """One operation each way."""
    return _Weights(alpha)(alpha)


class _Weights(jt.Function):
    """Keeps its input only."""

    def __init__(self, alpha: Var) -> None:
        super().__init__()
        self.alpha, self.layout = alpha, RayWeights(alpha.shape[1])

    def execute(self, alpha: Var) -> Var:
        """Weights."""
        return SOURCE.call("ray_weights", self.layout, shapes32(alpha.shape), [alpha])[0]

    def grad(self, d_weights: Var) -> Var:
        """The cotangent of alpha."""
        return SOURCE.call("ray_weights_backward", self.layout, shapes32(self.alpha.shape), [self.alpha, d_weights])[0]


# On the CPU the reference is as good: rays are few, and what counts there are points.
weights_from_alpha = Kernel(_weights_reference, cuda=_weights_native)


def points_along(origins: Var, directions: Var, depths: Var) -> Var:
    """Points origins + depth * directions: [R, 3], [R, 3], [R, N] -> [R, N, 3]."""
    return origins.unsqueeze(1) + directions.unsqueeze(1) * depths.unsqueeze(2)


def composite(weights: Var, values: Var) -> Var:
    """Sum of values by weight along each ray: [R, N], [R, N, C] -> [R, C]."""
    return (weights.unsqueeze(2) * values).sum(dim=1)


def inverted_sphere(points: Var) -> Var:
    """NeRF++'s coordinates (x / r, 1 / r) of points outside the unit sphere, r >= 1: [..., 3] -> [..., 4]."""
    radius = jt.maximum(length(points, keepdims=True), 1.0)
    return jt.concat([points / radius, 1.0 / radius], dim=-1)
