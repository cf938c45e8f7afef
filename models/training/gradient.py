"""The gradient of a batch, summed over chunks, of which only one is in memory at a time, and over processes.

R entries in the batch, r in a chunk. Each term of the loss is a sum and a count. The counts of the whole batch are
computed first; with them, the losses of the chunks add up to the loss of the batch, and so do the gradients. Chunks are
added in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from models.machine.backend import jt
from models.methods.protocol import Batch, Model, Noise, Precomputed
from models.ops.weighted_means import weighted_means
from models.structs import Objective, StepContext, Var

TOTAL = "total"  # name of the weighted sum among the losses
Counts = Mapping[str, float]  # counts of a whole batch, by term


@dataclass(frozen=True)
class BatchGradient:
    """The result of one batch: losses, output, and d total / d parameter."""

    losses: dict[str, Var]  # the mean of each term, and `total`, their weighted sum
    output: Any  # output of the objective
    gradients: list[Var]  # in the order of the parameters
    weights: dict[str, float] = field(default_factory=dict)  # of the terms in `total`


@dataclass(frozen=True)
class Chunk:
    """A part of a batch."""

    batch: Batch
    noise: Noise | None
    precomputed: Precomputed = None


class GradientSum:
    """Sums losses and gradients of a batch: call `chunks`, `add` for each of them, then `result`.

    The chunk size affects only memory and rounding. If memory runs out, start again with smaller `chunks`.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        noise: Noise | None,
        over_all: Callable[[np.ndarray], None] | None,
        context: StepContext,
        parameters: Sequence[Var],
    ) -> None:
        """`over_all` replaces an array by its sum over the processes that share a batch; None for the whole batch."""
        self.batch, self.noise, self._over_all = batch, noise, over_all
        self._model, self._context, self._parameters = model, context, parameters
        self._counts: Counts = {}
        self._missing = -1  # remaining chunks
        self._sum: BatchGradient | None = None  # sum of the completed chunks, without output
        self._outputs: list[Any] = []

    @property
    def is_complete(self) -> bool:
        """Whether all chunks were added."""
        return self._missing == 0

    def chunks(self, size: int) -> list[Chunk]:
        """The batch in chunks of at most `size` entries, with `precompute` done and counts known.

        An undivided batch is precomputed and counted when it is differentiated.
        """
        count, context = len(self.batch), self._context
        spans = [slice(start, min(start + size, count)) for start in range(0, count, size)]
        self._sum, self._outputs, self._missing = None, [], len(spans)
        if len(spans) == 1 and self._over_all is None:
            return [Chunk(self.batch, self.noise)]
        chunks, counts = list[Chunk](), dict[str, float]()
        for rows in spans:
            batch, noise = self.batch.part(rows.start, rows.stop), _rows_of(self.noise, rows)
            chunks.append(Chunk(batch, noise, self._model.precompute(batch, noise, context)))
            with jt.no_grad():  # Jittor computes only what is requested, so the rest of the objective is not evaluated
                terms = self._model.objective(batch, noise, context, chunks[-1].precomputed).terms
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

    def add(self, objective: Objective) -> None:
        """Differentiate the objective of a chunk; starts the computation, which on the CPU is finished on return."""
        losses = losses_of(objective, self._counts)
        gradients = [_cut(value) for value in jt.grad(losses[TOTAL], self._parameters)]
        output = mapped(_cut, objective.output)
        weights = {name: term.weight for name, term in objective.terms.items()}
        means = {name: _cut(value) for name, value in losses.items()}
        one = BatchGradient(means, output, gradients, weights)
        # The returned values must not keep the graph: its activations would stay in memory during the next chunk or
        # step.
        del objective, losses
        # A failed allocation is raised here, before any weight changes. The values of a chunk are computed before they
        # are added, as for an undivided batch.
        jt.sync([*_values(one), *_leaves(output)])
        self._sum = one if self._sum is None else _added(self._sum, one)
        self._outputs.append(output)
        self._missing -= 1

    def result(self) -> BatchGradient:
        """Losses and gradients of the whole batch, float32, and the output of what was added here."""
        found = self._sum
        if found is None:
            raise ValueError("no chunk was added")
        if len(self._outputs) > 1:
            found = replace(found, output=joined(self._outputs))
            found = _with(found, [_cut(value.float32()) for value in _values(found)])
        return found if self._over_all is None else _of_all(self._over_all, found)


def losses_of(objective: Objective, counts: Counts) -> dict[str, Var]:
    """The mean of each term, and their weighted sum."""
    terms = objective.terms
    numbers = [(term.total, counts.get(name, term.count), term.margin, term.weight) for name, term in terms.items()]
    return dict(zip((TOTAL, *terms), weighted_means(*zip(*numbers, strict=True)), strict=True))


def joined(outputs: Sequence[Any]) -> Any:
    """Concatenate the outputs of the parts of a batch."""
    return _mapped(_joined, outputs)


def mapped(function: Callable[[Var], Any], output: Any) -> Any:
    """An output with `function` applied to each Var."""
    return _mapped(lambda _, values: function(values[0]), [output])


def _rows_of(noise: Noise | None, rows: slice) -> Noise | None:
    """The jitter of a range of entries."""
    return None if noise is None else {name: array[rows] for name, array in noise.items()}


def _values(found: BatchGradient) -> list[Var]:
    """Gradients and losses."""
    return [*found.gradients, *found.losses.values()]


def _with(found: BatchGradient, values: Sequence[Var]) -> BatchGradient:
    """The same structure with other `_values`."""
    jt.sync(values)
    rest = iter(values)
    gradients = [next(rest) for _ in found.gradients]
    return replace(found, gradients=gradients, losses={name: next(rest) for name in found.losses})


def _added(total: BatchGradient, one: BatchGradient) -> BatchGradient:
    """Add a chunk in float64."""
    pairs = zip(_values(total), _values(one), strict=True)
    return _with(total, [_cut(a.float64() + b.float64()) for a, b in pairs])


def _of_all(over_all: Callable[[np.ndarray], None], found: BatchGradient) -> BatchGradient:
    """Sum losses and gradients over processes, in one buffer."""
    places = _values(found)
    buffer = np.concatenate([value.numpy().reshape(-1) for value in places])
    over_all(buffer)
    parts = np.split(buffer, np.cumsum([value.numel() for value in places])[:-1])
    shaped = (part.reshape(value.shape) for part, value in zip(parts, places, strict=True))
    return _with(found, [jt.array(part).stop_grad() for part in shaped])


def _cut(value: Var) -> Var:
    """The same values, detached from their graph."""
    return value.detach().stop_grad()


def _leaves(output: Any) -> list[Var]:
    """The Vars of an output, in order."""
    values = [getattr(output, field.name) for field in fields(output)]
    return [leaf for value in values for leaf in (_leaves(value) if is_dataclass(value) else [value])]


def _mapped(function: Callable[[Field, list[Var]], Var], outputs: Sequence[Any]) -> Any:
    """An output in which each Var is computed from the corresponding Vars of `outputs`."""
    changed = {}
    for entry in fields(outputs[0]):
        values = [getattr(output, entry.name) for output in outputs]
        changed[entry.name] = _mapped(function, values) if is_dataclass(values[0]) else function(entry, values)
    return replace(outputs[0], **changed)


def _joined(field: Field, values: list[Var]) -> Var:
    """Concatenate the rows of several chunks; values without a row per entry are equal in all of them."""
    return jt.concat(values, dim=0) if field.metadata.get("rows", True) else values[0]
