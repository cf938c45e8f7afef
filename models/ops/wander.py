"""The noise by which hardly seen splats look for a better place, as published (MCMC, arXiv 2404.09591, section 4).

N splats: means [N, 3], quats [N, 4], sizes [N, 3] as logarithms, opacities [N, 1] as logits. Not differentiable.
"""

from __future__ import annotations

import numpy as np

from models.machine.backend import jt
from models.ops.kernel import Kernel
from models.structs import Var

GATE_SLOPE, GATE_MIDDLE = 100.0, 0.005  # of the opacity, in the published noise
GATE_END = 0.1  # the noise of splats that are more opaque is below 1e-4 of the largest
LEAST_NORM = 1e-12  # of a quaternion
STEEPEST = 80.0  # exponents beyond it overflow


def rotations(quats: np.ndarray) -> np.ndarray:
    """[N, 3, 3]."""
    w, x, y, z = (quats / np.maximum(np.linalg.norm(quats, axis=1, keepdims=True), LEAST_NORM)).T
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]
    rows += [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]
    rows += [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]
    return np.stack(rows, axis=1).reshape(-1, 3, 3)


def sigmoid(values: np.ndarray) -> np.ndarray:
    """The logistic function."""
    return 1.0 / (1.0 + np.exp(-np.clip(values, -STEEPEST, STEEPEST)))


def _reference(
    means: Var, quats: Var, sizes: Var, opacities: Var, rate: float, flat: bool, generator: np.random.Generator
) -> Var | None:
    """Means after the noise of a step of that rate; None where nothing moves. Nothing comes from the device for it.

    Surfels (`flat`) stay in their planes: off them they would be fog in front of the surface.
    """
    if rate == 0.0:
        return None
    noise = generator.standard_normal(tuple(means.shape), dtype=np.float32)
    if flat:
        noise[:, 2] = 0.0
    gate = (GATE_SLOPE * (GATE_MIDDLE - opacities.sigmoid())).sigmoid()
    local = jt.array(noise) * (2.0 * sizes).exp()
    units = quats / jt.maximum(quats.sqr().sum(dim=1, keepdims=True).sqrt(), LEAST_NORM)
    axes = units[:, 1:]
    once = 2.0 * jt.cross(axes, local, dim=1)
    turned = local + units[:, :1] * once + jt.cross(axes, once, dim=1)
    return means + rate * gate * turned


def _on_the_host(
    means: Var, quats: Var, sizes: Var, opacities: Var, rate: float, flat: bool, generator: np.random.Generator
) -> Var | None:
    """The same, drawn and computed for those alone that feel it."""
    opacity = sigmoid(opacities.numpy()[:, 0])
    rows = np.flatnonzero(opacity < GATE_END)
    if len(rows) == 0 or rate == 0.0:
        return None
    gate = sigmoid(-GATE_SLOPE * (opacity[rows] - GATE_MIDDLE))
    squares = np.exp(2.0 * sizes.numpy()[rows])
    if flat:
        squares[:, 2] = 0.0
    local = generator.standard_normal((len(rows), 3), dtype=np.float32) * squares
    moved = np.einsum("nij,nj->ni", rotations(quats.numpy()[rows]), local)
    found = means.numpy().copy()
    found[rows] += (rate * gate[:, None] * moved).astype(np.float32)
    return jt.array(found)


wander = Kernel(_reference, cpu=_on_the_host)
