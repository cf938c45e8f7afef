"""Rasterise Gaussians front to back (3DGS, arXiv 2308.04079, section 4; 2DGS, arXiv 2403.17888).

N Gaussians sorted by the depth of their centres, H x W pixels with centres at +0.5. The opacity at a pixel is min(0.99,
opacity exp(-sigma)), and it is ignored below 1 / 255. Compositing of a pixel stops before the Gaussian that would
reduce its transmittance to 1e-4 or less. The result is one image [H, W, C]: weighted sums, and the opacity last.
Differentiable once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.gaussians.splat_project import Ellipsoids, Surfels
from models.ops.sizes import PAD
from models.ops.source import Kernel, Source
from models.ops.volrend import exclusive_cumprod
from models.structs import Var

MOST_ALPHA = 0.99
LEAST_ALPHA = 1.0 / 255.0
LEAST_LEFT = 1e-4  # transmittance at which compositing stops
SMALLEST = 1e-12  # smallest divisor, for a surfel seen edge-on
NEAREST_HIT = 0.2  # smallest depth in the moments of 1 / depth: near_n of the published 2DGS, which has no nearer hits
EDGE = 0.01  # pixels added to the bounding box because of rounding

# Channels of an image of ellipsoids: colour, depth of the centres, opacity. Of surfels: colour, depth of the centres,
# normal in the camera frame, depth of the hits, first and second moment of 1 / depth relative to the first hit, and
# depth of the hits within the first part of the accumulated weight, which is not differentiated.
COLOR, DEPTH, NORMAL = slice(0, 3), slice(3, 4), slice(4, 7)
HIT, FIRST, SECOND, FRONT, OPACITY = slice(7, 8), slice(8, 9), slice(9, 10), slice(10, 11), slice(-1, None)
ELLIPSOID_CHANNELS, SURFEL_CHANNELS = 5, 12
CHANNELS = {"ellipsoids": ELLIPSOID_CHANNELS, "surfels": SURFEL_CHANNELS}
FRONT_LEFT = 0.85  # transmittance behind the hits that define the surface


@dataclass(frozen=True)
class Raster:
    """The sizes and constants that reference and native source share."""

    width: int
    height: int


_BOUNDS = {"MOST_ALPHA": MOST_ALPHA, "LEAST_LEFT": LEAST_LEFT, "SMALLEST": SMALLEST, "NEAREST_HIT": NEAREST_HIT}
SOURCE = Source.of("splat_raster.h", Raster, PAD=PAD, EDGE=EDGE, FRONT_LEFT=FRONT_LEFT, **_BOUNDS)


@dataclass(frozen=True)
class Look:
    """Inputs of the rasteriser besides the projected Gaussians."""

    colors: Var  # [N, 3]
    opacities: Var  # [N, 1]
    background: Var  # [3]


def _pixels(width: int, height: int) -> Var:
    """Centres [P, 1, 2]."""
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    return jt.array(np.stack([x, y], axis=-1).reshape(-1, 1, 2).astype(np.float32))


def _weights(sigma: Var, opacities: Var, depths: Var, radii: Var) -> tuple[Var, Var]:
    """Weights [P, N] of Gaussians from sigma [P, N], and the transmittance [P, 1]."""
    order, _ = jt.argsort(depths.reshape((-1,)).stop_grad())
    rank, _ = jt.argsort(order)
    is_seen = (radii[:, 0] > 0).float32()
    full = opacities.reshape((1, -1)) * (-sigma).exp()
    alpha = jt.ternary(full < MOST_ALPHA, full, jt.full_like(full, MOST_ALPHA))
    counts = jt.logical_and(alpha >= LEAST_ALPHA, is_seen.broadcast(alpha.shape) > 0).float32().stop_grad()
    alpha = (alpha * counts)[:, order]
    before = exclusive_cumprod(1.0 - alpha)
    after = (before * (1.0 - alpha)).stop_grad()
    takes_part = jt.logical_or(after > LEAST_LEFT, alpha == 0.0).float32().stop_grad()
    # the first Gaussian that is cut off and those behind it have weight 0
    weights = alpha * before * takes_part * exclusive_cumprod(takes_part)
    return weights[:, rank], 1.0 - weights.sum(dim=1, keepdims=True)


def _picture(weights: Var, left: Var, channels: Var, look: Look, layout: Raster) -> Var:
    """The image [H, W, C] composited from channels [N, C - 1] that are constant over each Gaussian; opacity is the last
    channel.
    """
    sums = jt.matmul(weights, channels)
    color = sums[:, :3] + left * look.background.reshape((1, 3))
    return jt.concat([color, sums[:, 3:], 1.0 - left], dim=1).reshape((layout.height, layout.width, -1))


def _ellipsoids_reference(seen: Ellipsoids, look: Look, layout: Raster) -> Var:
    """Evaluates every ellipsoid at every pixel."""
    offset = seen.means2d.unsqueeze(0) - _pixels(layout.width, layout.height)
    x, y = offset[:, :, 0], offset[:, :, 1]
    a, b, c = (seen.conics[:, k].unsqueeze(0) for k in range(3))
    sigma = (0.5 * (a * x * x + c * y * y) + b * x * y).maximum(0.0)
    weights, left = _weights(sigma, look.opacities, seen.depths, seen.radii)
    return _picture(weights, left, jt.concat([look.colors, seen.depths], dim=1), look, layout)


def _surfels_reference(seen: Surfels, look: Look, layout: Raster) -> Var:
    """Evaluates every surfel at every pixel."""
    pixels = _pixels(layout.width, layout.height)
    offset = seen.means2d.unsqueeze(0) - pixels
    rows = [seen.to_picture[:, k].unsqueeze(0) for k in range(3)]
    h, k = (pixels[:, :, axis : axis + 1] * rows[2] - rows[axis] for axis in range(2))
    third = h[:, :, 0] * k[:, :, 1] - h[:, :, 1] * k[:, :, 0]
    third = jt.ternary(third.abs() < SMALLEST, jt.full_like(third, SMALLEST), third)
    u = (h[:, :, 1] * k[:, :, 2] - h[:, :, 2] * k[:, :, 1]) / third
    v = (h[:, :, 2] * k[:, :, 0] - h[:, :, 0] * k[:, :, 2]) / third
    plane, blur = u * u + v * v, 2.0 * offset.sqr().sum(dim=2)
    depth = rows[2][:, :, 0] * u + rows[2][:, :, 1] * v + rows[2][:, :, 2]
    is_hit = jt.logical_and(plane <= blur, depth > 0.0).float32().stop_grad()
    hit = is_hit * depth + (1.0 - is_hit) * rows[2][:, :, 2]
    sigma = 0.5 * (is_hit * plane + (1.0 - is_hit) * blur)
    weights, left = _weights(sigma, look.opacities, seen.depths, seen.radii)
    flat = _picture(weights, left, jt.concat([look.colors, seen.depths, seen.normals], dim=1), look, layout)
    place = 1.0 / jt.ternary(hit < NEAREST_HIT, jt.full_like(hit, NEAREST_HIT), hit)
    place = place - _first(place, weights, seen.depths)
    sums = [(weights * values).sum(dim=1) for values in (hit, place, place**2)]
    more = [value.reshape((layout.height, layout.width, 1)) for value in (*sums, _front(hit, weights, seen.depths))]
    return jt.concat([flat[:, :, :7], *more, flat[:, :, 7:]], dim=2)


def _front(hit: Var, weights: Var, depths: Var) -> Var:
    """The weighted sum [P] of the hit depths of each pixel; only the weight accumulated while the transmittance is
    above FRONT_LEFT counts.
    """
    order = np.argsort(depths.numpy().reshape(-1), kind="stable")
    taken = weights.numpy()[:, order]
    before = 1.0 - np.cumsum(taken, axis=1) + taken
    parts = np.maximum(np.minimum(taken, before - FRONT_LEFT), 0.0)
    return jt.array((parts * hit.numpy()[:, order]).sum(axis=1).astype(np.float32)).stop_grad()


def _first(places: Var, weights: Var, depths: Var) -> Var:
    """The value (inverse depth) [P, 1] of the first Gaussian with a nonzero weight; 0 if there is none."""
    order = np.argsort(depths.numpy().reshape(-1), kind="stable")
    has_weight = weights.numpy()[:, order] > 0
    firsts = places.numpy()[np.arange(len(has_weight)), order[has_weight.argmax(axis=1)]]
    return jt.array(np.where(has_weight.any(axis=1), firsts, 0.0).astype(np.float32)[:, None]).stop_grad()


def _ellipsoids_native(seen: Ellipsoids, look: Look, layout: Raster) -> Var:
    call = _Composite("ellipsoids", seen.radii, look.background, layout)
    return call(seen.means2d, seen.conics, look.colors, look.opacities, seen.depths)


def _surfels_native(seen: Surfels, look: Look, layout: Raster) -> Var:
    call = _Composite("surfels", seen.radii, look.background, layout)
    return call(seen.means2d, seen.to_picture, seen.normals, look.colors, look.opacities, seen.depths)


class _Composite(jt.Function):
    """Native rasteriser of ellipsoids or surfels; stores its inputs and the image for the backward pass.

    It computes at once, because the fusion of pending operations would change the rounding.
    """

    def __init__(self, form: str, radii: Var, background: Var, layout: Raster) -> None:
        super().__init__()
        self.form, self.radii, self.background, self.layout = form, radii, background, layout

    def execute(self, *values: Var) -> Var:
        """The rasterised image [H, W, C]."""
        self.inputs = list(values)
        shape = (self.layout.height, self.layout.width, CHANNELS[self.form])
        inputs = [*self.inputs, self.radii, self.background]
        self.picture = SOURCE.call(f"composite_{self.form}", self.layout, [shape], inputs)[0]
        jt.sync([self.picture])
        return self.picture

    def grad(self, d_picture: Var) -> tuple[Var, ...]:
        """Cotangents of the inputs."""
        inputs = [*self.inputs, self.radii, self.picture, d_picture]
        shapes = [value.shape for value in self.inputs]
        gradients = SOURCE.call(f"composite_{self.form}_backward", self.layout, shapes, inputs)
        jt.sync(gradients)
        return tuple(gradients)


composite_ellipsoids = Kernel(_ellipsoids_reference, cpu=_ellipsoids_native, cuda=_ellipsoids_native)
composite_surfels = Kernel(_surfels_reference, cpu=_surfels_native, cuda=_surfels_native)
