"""The SGLD noise of 3DGS-MCMC (arXiv 2404.09591, section 4).

N Gaussians; each centre moves by rate * gate(opacity) * covariance * eta, where eta is a standard normal vector. The
numbers of a Gaussian depend only on the key of the step and its index, by Philox4x32-10 (Salmon, Moraes, Dror and Shaw,
"Parallel random numbers: as easy as 1, 2, 3", SC 2011) and the Box-Muller transform. They do not depend on the device,
on the number of threads, or on the number of Gaussians.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.kernel import Kernel
from models.ops.source import Source
from models.ops.splat_project import SHORTEST, rotations
from models.structs import Var

GATE_SLOPE, GATE_MIDDLE = 100.0, 0.005  # of the opacity gate, as published
GATE_END = 0.1  # the noise of more opaque Gaussians is below 1e-4 of the maximum and is skipped
ROUNDS = 10  # the usual number; 7 rounds already pass the published tests
MULTIPLIERS, STEPS_OF_KEY = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)  # of Philox4x32
WORD = 0xFFFFFFFF  # 32 bits
BITS = 24  # used bits of 32: as many as float32 represents exactly


@dataclass(frozen=True)
class Wander:
    """The layout of a step."""

    rate: float  # 0: no noise
    flat: int  # 1: surfels, which move only in their planes; otherwise they would blur the surface
    first_key: int  # key of the random numbers: two 32-bit words as signed numbers
    second_key: int


def _words(name: str, values: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
    """Words as constants of the native source, where they are signed."""
    return tuple((f"{name}_{place}", int(np.uint32(value).view(np.int32))) for place, value in enumerate(values))


SOURCE = Source(
    "splat_wander.h",
    (Wander,),
    (
        ("GATE_SLOPE", GATE_SLOPE),
        ("GATE_MIDDLE", GATE_MIDDLE),
        ("GATE_END", GATE_END),
        ("ROUNDS", ROUNDS),
        ("BITS", BITS),
        ("SHORTEST", SHORTEST),
        ("REACH", 1.0),
        ("FARTHEST_REACH", 1.0),
        *_words("MULTIPLIER", MULTIPLIERS),
        *_words("STEP_OF_KEY", STEPS_OF_KEY),
    ),
)


def step_of(rate: float, flat: bool, *entropy: int) -> Wander:
    """The layout of a step with random numbers from `entropy`: the seed and the step."""
    words = np.random.SeedSequence(entropy).generate_state(2, np.uint32).view(np.int32)
    return Wander(float(rate), int(flat), *words.tolist())


def philox(count: int, key: tuple[int, int]) -> np.ndarray:
    """Random words, uint32 [N, 4], of the counters (n, 0, 0, 0) under a key of two words."""
    keys = np.array(key, np.int64).astype(np.uint64) & np.uint64(WORD)
    a, b, c, d = np.arange(count, dtype=np.uint64), *np.zeros((3, count), np.uint64)
    for _ in range(ROUNDS):
        left, right = (values * np.uint64(by) for values, by in zip((a, c), MULTIPLIERS, strict=True))
        a, c = (right >> np.uint64(32)) ^ b ^ keys[0], (left >> np.uint64(32)) ^ d ^ keys[1]
        b, d = right & np.uint64(WORD), left & np.uint64(WORD)
        keys = (keys + np.array(STEPS_OF_KEY, np.uint64)) & np.uint64(WORD)
    return np.stack([a, b, c, d], axis=1).astype(np.uint32)


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
    return SOURCE.call("wander_splats", step, [(tuple(means.shape), "float32")], inputs)[0].stop_grad()


wander_splats = Kernel(_reference, cpu=_native, cuda=_native)
