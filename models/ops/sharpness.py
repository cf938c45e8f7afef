"""inv_s from its parameter: inv_s = exp(10 variance), 1/s of the paper's logistic density.

Clamped, with no gradient outside the limits. Differentiable once.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.ops.elementwise import hard_clip
from models.ops.kernel import Kernel
from models.ops.native import differentiable
from models.ops.network import shapes32
from models.ops.source import Source
from models.structs import Var

# The factor in the exponent makes the learning rate of the networks suitable for this scalar.
EXPONENT_SCALE = 10.0
MAX_EXPONENT = 80.0  # outside the limits; exp of more than 88 is infinite, and its gradient NaN
INV_S_MIN, INV_S_MAX = 1e-6, 1e6  # outside them the sigmoid of sdf * inv_s is a constant or a step in float32


@dataclass(frozen=True)
class SharpnessEnds:
    """The sizes and constants that reference and native source share."""

    scale: float = EXPONENT_SCALE
    most: float = MAX_EXPONENT
    low: float = INV_S_MIN
    high: float = INV_S_MAX


SOURCE = Source("sharpness.h", (SharpnessEnds,))


def _reference(variance: Var) -> Var:
    """inv_s [1] of the parameter [1]."""
    exponent = hard_clip(variance * EXPONENT_SCALE, -MAX_EXPONENT, MAX_EXPONENT)
    return hard_clip(exponent.exp(), INV_S_MIN, INV_S_MAX)


def _native(variance: Var) -> Var:
    return differentiable(SOURCE, "sharpness", SharpnessEnds(), shapes32((1,)), [variance])


# On the CPU a single number costs nothing in either form.
sharpness = Kernel(_reference, cuda=_native)
