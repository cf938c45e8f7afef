"""The sum of a loss over rows, and the number of rows that count. Differentiable once, in the values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.elementwise import hard_clip, length, magnitude
from models.ops.source import Kernel, Source, only_first
from models.structs import Var

# Opacities are clamped this far from 0 and 1 in the cross-entropy; clamped ones have no gradient (as published).
OPACITY_MARGIN = 1e-3


def _cross_entropy(probabilities: Var, targets: Var) -> Var:
    clipped = hard_clip(probabilities, OPACITY_MARGIN, 1.0 - OPACITY_MARGIN)
    return -(targets * clipped.log() + (1.0 - targets) * (1.0 - clipped).log())


# The loss of each row of values [N, C], given its targets [N, C]; [N, C] or [N, 1].
FORMULAS: dict[str, Callable[[Var, Var], Var]] = {
    "ABSOLUTE": lambda values, targets: magnitude(values - targets),
    "SQUARED": lambda values, targets: (values - targets).sqr(),
    "CROSS_ENTROPY": _cross_entropy,
    "UNIT_LENGTH": lambda values, _: (length(values, keepdims=True) - 1.0).sqr(),
    "MAGNITUDE": lambda values, _: magnitude(values),
    "BELOW_ZERO": lambda values, _: jt.maximum(-values, 0.0),
}
Rays = tuple[Var, Var]  # the ray of each row, int32 [N], and the offsets int32 [R + 1]; rows behind are of none
KINDS = {name: index for index, name in enumerate(FORMULAS)}


@dataclass(frozen=True)
class LossSum:
    """The sizes and constants that reference and native source share."""

    kind: int  # of KINDS
    width: int  # C
    counts: int  # 0 if all rows count once
    rays: int  # R if counts are those of rays, else 0
    margin: float = OPACITY_MARGIN


SOURCE = Source.of("loss_sums.h", LossSum, **KINDS)


def _reference(
    kind: str, values: Var, targets: Var | None = None, counts: Var | None = None, rays: Rays | None = None
) -> tuple[Var, Var]:
    """The sum of a loss, a key of FORMULAS, over rows, [1], and their number, [1], which is not differentiated.

    values [N, C] or [N, M, C]; targets: of the same shape, constants; counts [N, 1] or [N, M]: how often a row counts,
    such as 0 or 1, None: once; with `rays` counts [R, 1]: how often the rows of a ray count.
    """
    rows = values.reshape((-1, values.shape[-1]))
    flags = jt.ones((rows.shape[0], 1)) if counts is None else counts.reshape((-1, 1)).detach()
    if rays is not None:
        of_rows, offsets = rays
        flags = flags[of_rows] * (jt.index((rows.shape[0], 1), dim=0) < offsets[-1:].unsqueeze(1)).float32()
    return (FORMULAS[kind](rows, rows if targets is None else targets) * flags).sum(), flags.sum().stop_grad()


def _native(
    kind: str, values: Var, targets: Var | None = None, counts: Var | None = None, rays: Rays | None = None
) -> tuple[Var, Var]:
    rows = values.reshape((-1, values.shape[-1])) if len(values.shape) > 2 else values
    layout = LossSum(KINDS[kind], rows.shape[1], int(counts is not None), 0 if rays is None else rays[1].shape[0] - 1)
    given = (targets, counts, *(rays or (None, None)))
    inputs = [rows, *(rows if value is None else value for value in given)]  # any array, if it is not read
    total, count = SOURCE.differentiable("loss_sum", layout, [(1,), (1,)], inputs, (0,), only_first)
    return total, count.stop_grad()


loss_sum = Kernel(_reference, cpu=_native, cuda=_native)
