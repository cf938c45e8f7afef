"""The terms of a loss as means, and their weighted sum. Differentiable once, in the totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from models.machine.backend import jt
from models.ops.source import Kernel, Source
from models.structs import Var

MOST_TERMS = 16  # maximum number of terms: the layout is passed with each launch


@dataclass(frozen=True)
class WeightedMeans:
    """The layout, with an entry for each term."""

    weights: tuple[float, ...]
    margins: tuple[float, ...]  # added to the counts
    counts: tuple[float, ...]  # known counts; the others are Vars
    known: tuple[int, ...]  # 1 if a count is a Var
    given: int = 0  # bit k is set if a loss depends on output k


SOURCE = Source("weighted_means.h", (WeightedMeans,), (("MOST_TERMS", MOST_TERMS),), lists=True)


def _reference(
    totals: Sequence[Var], counts: Sequence[Var | float], margins: Sequence[float], weights: Sequence[float]
) -> list[Var]:
    """The sum of weight * total / (count + margin) over the terms, then each without its weight; all [1]."""
    means = [total / (count + margin) for total, count, margin in zip(totals, counts, margins, strict=True)]
    pairs = zip(means, weights, strict=True)
    weighted = [mean if weight == 1.0 else mean * weight for mean, weight in pairs]
    return [sum(weighted[1:], start=weighted[0]), *means]


def _native(
    totals: Sequence[Var], counts: Sequence[Var | float], margins: Sequence[float], weights: Sequence[float]
) -> list[Var]:
    if len(totals) > MOST_TERMS:
        return _reference(totals, counts, margins, weights)
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
        return tuple(SOURCE.call("weighted_means", self.layout, outputs, [*totals, *self.counts]))

    def grad(self, *cotangents: Var | None) -> tuple[Var, ...]:
        """Cotangents of the totals."""
        given = [value for value in cotangents if value is not None]
        bits = sum(1 << index for index, value in enumerate(cotangents) if value is not None)
        outputs = [(1,)] * (len(cotangents) - 1)
        inputs = [*given, *self.counts]
        return tuple(SOURCE.call("weighted_means_backward", replace(self.layout, given=bits), outputs, inputs))


weighted_means = Kernel(_reference, cpu=_native, cuda=_native)
