"""The sum of a loss over rows, and the number of rows that count; the terms of a loss as means, and their weighted sum.

Both are differentiable once, in the values and in the totals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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


MOST_TERMS = 16  # maximum number of terms: the layout is passed with each launch


@dataclass(frozen=True)
class WeightedMeans:
    """The layout, with an entry for each term."""

    weights: tuple[float, ...]
    margins: tuple[float, ...]  # added to the counts
    counts: tuple[float, ...]  # known counts; the others are Vars
    known: tuple[int, ...]  # 1 if a count is a Var
    given: int = 0  # bit k is set if a loss depends on output k


MEANS_SOURCE = Source("weighted_means.h", (WeightedMeans,), (("MOST_TERMS", MOST_TERMS),), lists=True)


def _means_reference(
    totals: Sequence[Var], counts: Sequence[Var | float], margins: Sequence[float], weights: Sequence[float]
) -> list[Var]:
    """The sum of weight * total / (count + margin) over the terms, then each without its weight; all [1]."""
    means = [total / (count + margin) for total, count, margin in zip(totals, counts, margins, strict=True)]
    pairs = zip(means, weights, strict=True)
    weighted = [mean if weight == 1.0 else mean * weight for mean, weight in pairs]
    return [sum(weighted[1:], start=weighted[0]), *means]


def _means_native(
    totals: Sequence[Var], counts: Sequence[Var | float], margins: Sequence[float], weights: Sequence[float]
) -> list[Var]:
    if len(totals) > MOST_TERMS:
        return _means_reference(totals, counts, margins, weights)
    known = [int(not hasattr(count, "shape")) for count in counts]
    numbers = [float(count) if is_known else 0.0 for count, is_known in zip(counts, known, strict=True)]
    layout = WeightedMeans(tuple(map(float, weights)), tuple(map(float, margins)), tuple(numbers), tuple(known))
    return list(_Means([count for count, is_known in zip(counts, known, strict=True) if not is_known], layout)(*totals))


class _Means(jt.Function):
    """Stores the counts."""

    def __init__(self, counts: list[Var], layout: WeightedMeans) -> None:
        super().__init__()
        self.counts, self.layout = [count.detach() for count in counts], layout

    def execute(self, *totals: Var) -> tuple[Var, ...]:
        """The sum, and the means."""
        outputs = [(1,)] * (1 + len(totals))
        return tuple(MEANS_SOURCE.call("weighted_means", self.layout, outputs, [*totals, *self.counts]))

    def grad(self, *cotangents: Var | None) -> tuple[Var, ...]:
        """Cotangents of the totals."""
        given = [value for value in cotangents if value is not None]
        bits = sum(1 << index for index, value in enumerate(cotangents) if value is not None)
        outputs = [(1,)] * (len(cotangents) - 1)
        inputs = [*given, *self.counts]
        return tuple(MEANS_SOURCE.call("weighted_means_backward", replace(self.layout, given=bits), outputs, inputs))


weighted_means = Kernel(_means_reference, cpu=_means_native, cuda=_means_native)
