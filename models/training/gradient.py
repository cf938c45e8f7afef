"""The gradient of a batch, summed over chunks, of which only one is in memory at a time, and over processes.

R entries in the batch, r in a chunk. Each term of the loss is a sum and a count. The counts of the whole batch are
computed first; with them, the losses of the chunks add up to the loss of the batch, and so do the gradients. Chunks are
added in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.machine.backend import jt
from models.methods.protocol import Batch, Model, Precomputed
from models.ops.loss_sums import weighted_means
from models.structs import OF_THE_BATCH, Noise, Objective, Var, loss_tag

TOTAL = "total"  # name of the weighted sum among the losses
Counts = Mapping[str, float]  # counts of a whole batch, by term
Sum = Callable[[np.ndarray], None]  # replaces an array by its sum over the processes that share a batch
Part = tuple[Batch, Noise | None, Precomputed]  # of a batch


@dataclass(frozen=True)
class BatchGradient:
    """The result of one batch: losses, output, and d total / d parameter."""

    losses: dict[str, Var]  # the mean of each term, and `total`, their weighted sum
    output: dict[str, Var]  # of the objective
    gradients: list[Var]  # in the order of the parameters
    weights: dict[str, float]  # of the terms in `total`
    entries: int  # of the batch

    def weighted(self, scalars: Mapping[str, float]) -> dict[str, float]:
        """Scalars with the losses as they are in their sum `Loss/loss`: times their weights."""
        weights = {loss_tag(name): weight for name, weight in self.weights.items()}
        return {name: value * weights.get(name, 1.0) for name, value in scalars.items()}


class GradientSum:
    """Sums losses and gradients of a batch: call `prepare_chunks`, `add` for each of them, then `result`.

    The chunk size affects only memory and rounding. If memory runs out, start again with smaller chunks.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        noise: Noise | None,
        over_all: Sum | None,
        step: int,
        parameters: Sequence[Var],
    ) -> None:
        """`over_all`: for a part of a batch; None for the whole batch."""
        self.batch, self.noise, self._over_all = batch, noise, over_all
        self._model, self._step, self._parameters = model, step, parameters
        self._counts: Counts = {}
        self._missing = -1  # remaining chunks
        self._sum: BatchGradient | None = None  # sum of the completed chunks, without output
        self._outputs: list[dict[str, Var]] = []

    @property
    def is_complete(self) -> bool:
        """Whether all chunks were added."""
        return self._missing == 0

    def prepare_chunks(self, size: int) -> list[Part]:
        """The batch in chunks of at most `size` entries, with `precompute` done and counts known.

        An undivided batch is precomputed and counted when it is differentiated.
        """
        count, model = len(self.batch), self._model
        spans = [slice(start, min(start + size, count)) for start in range(0, count, size)]
        self._sum, self._outputs, self._missing = None, [], len(spans)
        if len(spans) == 1 and self._over_all is None:
            return [(self.batch, self.noise, None)]
        chunks, counts = list[Part](), dict[str, float]()
        for rows in spans:
            batch = self.batch.part(rows.start, rows.stop)
            noise = None if self.noise is None else {name: array[rows] for name, array in self.noise.items()}
            chunks.append((batch, noise, model.precompute(batch, noise)))
            with jt.no_grad():  # Jittor computes only what is requested, so the rest of the objective is not evaluated
                terms = model.objective(batch, noise, self._step, chunks[-1][2]).terms
                own = {name: term.count for name, term in terms.items()}
                del terms
                for name, size_or_var in own.items():
                    value = float(size_or_var.item()) if hasattr(size_or_var, "item") else size_or_var
                    counts[name] = counts.get(name, 0.0) + value
        if not self._counts:
            values = np.array(list(counts.values()))
            if self._over_all is not None:
                self._over_all(values)
            self._counts = dict(zip(counts, values.tolist(), strict=True))
        return chunks

    def add(self, part: Part) -> None:
        """Differentiate the objective of a chunk; starts the computation, which on the CPU is finished on return."""
        batch, noise, precomputed = part
        objective = self._model.objective(batch, noise, self._step, precomputed)
        losses = losses_of(objective, self._counts)
        gradients = [value.stop_grad() for value in jt.grad(losses[TOTAL], self._parameters)]
        output = {name: _cut(value) for name, value in objective.output.items()}
        weights = {name: term.weight for name, term in objective.terms.items()}
        means = {name: value.stop_grad() for name, value in losses.items()}
        one = BatchGradient(means, output, gradients, weights, len(batch))
        # The returned values must not keep the graph: its activations would stay in memory during the next chunk or
        # step.
        del objective, losses
        # A failed allocation is raised here, before any weight changes. The values of a chunk are computed before they
        # are added, as for an undivided batch.
        jt.sync([*_values(one), *output.values()])
        if self._sum is not None:
            pairs = zip(_values(self._sum), _values(one), strict=True)
            one = _with_values(self._sum, [_cut(a.float64() + b.float64()) for a, b in pairs])
        self._sum = one
        self._outputs.append(output)
        self._missing -= 1

    def result(self) -> BatchGradient:
        """Losses and gradients of the whole batch, float32, and the output of what was added here."""
        total = self._sum
        if total is None:
            raise ValueError("no chunk was added")
        if len(self._outputs) > 1:
            total = replace(total, output=joined(self._outputs))
            total = _with_values(total, [_cut(value.float32()) for value in _values(total)])
        return total if self._over_all is None else _summed(self._over_all, total)


def losses_of(objective: Objective, counts: Counts) -> dict[str, Var]:
    """The mean of each term, and their weighted sum."""
    terms = objective.terms
    numbers = [(term.total, counts.get(name, term.count), term.margin, term.weight) for name, term in terms.items()]
    return dict(zip((TOTAL, *terms), weighted_means(*zip(*numbers, strict=True)), strict=True))


def joined(outputs: Sequence[Mapping[str, Var]]) -> dict[str, Var]:
    """The outputs of the parts of a batch: rows of all of them, and values of the batch, which are equal in all."""
    return {
        name: value if name in OF_THE_BATCH else jt.concat([one[name] for one in outputs], dim=0)
        for name, value in outputs[0].items()
    }


def _values(gradient: BatchGradient) -> list[Var]:
    """Gradients and losses."""
    return [*gradient.gradients, *gradient.losses.values()]


def _with_values(before: BatchGradient, values: Sequence[Var]) -> BatchGradient:
    """The same structure with other `_values`."""
    jt.sync(values)
    rest = iter(values)
    gradients = [next(rest) for _ in before.gradients]
    return replace(before, gradients=gradients, losses={name: next(rest) for name in before.losses})


def _summed(over_all: Sum, part: BatchGradient) -> BatchGradient:
    """Sum losses and gradients over processes, in one buffer."""
    places = _values(part)
    buffer = np.concatenate([value.numpy().reshape(-1) for value in places])
    over_all(buffer)
    parts = np.split(buffer, np.cumsum([value.numel() for value in places])[:-1])
    shaped = (values.reshape(value.shape) for values, value in zip(parts, places, strict=True))
    return _with_values(part, [jt.array(values).stop_grad() for values in shaped])


def _cut(value: Var) -> Var:
    """The same values, detached from their graph."""
    return value.detach().stop_grad()
