"""The SGLD noise of 3DGS-MCMC (arXiv 2404.09591, section 4).

N Gaussians; each centre moves by rate * gate(opacity) * covariance * eta, where eta is a standard normal vector. The
numbers of a Gaussian depend only on the key of the step and its index, by `philox` and the Box-Muller transform, and
not on the device, the number of threads or the number of Gaussians.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.draw import BITS, PHILOX, philox
from models.ops.gaussians.splat_project import SHORTEST, rotations
from models.ops.source import Kernel, Source
from models.structs import Var

GATE_SLOPE, GATE_MIDDLE = 100.0, 0.005  # of the opacity gate, as published
GATE_END = 0.1  # the noise of more opaque Gaussians is below 1e-4 of the maximum and is skipped


@dataclass(frozen=True)
class Wander:
    """The layout of a step."""

    rate: float  # 0: no noise
    flat: int  # 1: surfels, which move only in their planes; otherwise they would blur the surface
    first_key: int  # key of the random numbers: two 32-bit words as signed numbers
    second_key: int


_GATE = {"GATE_SLOPE": GATE_SLOPE, "GATE_MIDDLE": GATE_MIDDLE, "GATE_END": GATE_END}
_BOUNDS = {"SHORTEST": SHORTEST, "REACH": 1.0, "FARTHEST_REACH": 1.0}  # two of them unused
SOURCE = Source.of("splat_wander.h", Wander, **_GATE, **_BOUNDS, **dict(PHILOX))


def step_of(rate: float, flat: bool, *entropy: int) -> Wander:
    """The layout of a step with random numbers from `entropy`: the seed and the step."""
    words = np.random.SeedSequence(entropy).generate_state(2, np.uint32).view(np.int32)
    return Wander(float(rate), int(flat), *words.tolist())


def normals(words: np.ndarray) -> np.ndarray:
    """Standard normal numbers, float32 [N, 3], of random words [N, 4], two by two (Box and Muller)."""
    high = (words >> np.uint32(32 - BITS)).astype(np.int32)
    share = (high[:, ::2] + 1).astype(np.float32) * np.float32(2.0**-BITS)  # (0, 1]
    angle = (high[:, 1::2] - 2 ** (BITS - 1)).astype(np.float32) * np.float32(np.pi * 2.0 ** (1 - BITS))  # [-pi, pi)
    radius = np.sqrt(np.float32(-2.0) * np.log(share))
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2).reshape(-1, 4)
    return both[:, :3]


def _reference(means: Var, quats: Var, sizes: Var, opacities: Var, step: Wander) -> Var:
    """The means [N, 3] after the noise of a step; not differentiable.

    Args:
        quats: [N, 4], w, x, y, z, of any length.
        sizes: [N, 3], logarithms of the standard deviations; the third of a surfel is not used.
        opacities: [N, 1], logits.
    """
    if step.rate == 0.0:
        return means.detach()
    drawn = jt.array(normals(philox(means.shape[0], (step.first_key, step.second_key))))
    squares = (2.0 * sizes).exp()
    if step.flat:
        squares = jt.concat([squares[:, :2], jt.zeros_like(squares[:, 2:])], dim=1)
    opacity = opacities.sigmoid()
    gate = (GATE_SLOPE * (GATE_MIDDLE - opacity)).sigmoid()
    offsets = (rotations(quats) * (drawn * squares).unsqueeze(1)).sum(dim=2)
    wanders = (opacity < GATE_END).broadcast(means.shape)
    return jt.ternary(wanders, means + step.rate * gate * offsets, means).stop_grad()


def _native(means: Var, quats: Var, sizes: Var, opacities: Var, step: Wander) -> Var:
    inputs = [value.detach() for value in (means, quats, sizes, opacities)]
    return SOURCE.detached("wander_splats", step, [means.shape], inputs)[0]


wander_splats = Kernel(_reference, cpu=_native, cuda=_native)
