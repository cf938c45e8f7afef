"""The gradient of a batch, added up over chunks, of which only one lives at a time, and over the ranks that share it.

R entries in the batch, r in a chunk. Each term of the loss is a sum and a count; the counts of a batch are known
before anything is differentiated, and with them given the losses of the chunks add up to the loss of the batch, and so
do the gradients. Chunks are added in float64 and rounded once: float32 numbers of like size add up without rounding
there, so that the sum is the same in any order, and whoever adds up some of them first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from models.machine.backend import jt
from models.machine.ranks.ranks import Ranks
from models.methods.protocol import Batch, Model, Noise, Precomputed
from models.ops.weighted_means import weighted_means
from models.structs import Objective, StepContext, Var
from models.training.sharing import Share, rows_of

TOTAL = "total"  # the weighted sum, among the losses
Counts = Mapping[str, float]  # of a whole batch, by term


@dataclass(frozen=True)
class BatchGradient:
    """What one batch gives: its losses, what they were computed from, and d total / d parameter."""

    losses: dict[str, Var]  # the mean of each term, and `total`, their weighted sum
    output: Any  # of the objective
    gradients: list[Var]  # in the order of the parameters
    watched: dict[str, Var] = field(default_factory=dict)  # d total / d what the objective says is watched


@dataclass(frozen=True)
class Chunk:
    """Some entries of a batch."""

    batch: Batch
    noise: Noise | None
    precomputed: Precomputed = None


class GradientSum:
    """Losses and gradients of a share of a batch: `chunks`, then `add` for each of them, then `result`.

    The chunk changes memory, and roundings only. Where memory ends, begin again with smaller `chunks`.
    """

    def __init__(self, model: Model, share: Share, context: StepContext, parameters: Sequence[Var]) -> None:
        self.share = share
        self._model, self._context, self._parameters = model, context, parameters
        self._counts: Counts = {}
        self._missing = -1  # chunks to be added
        self._sum: BatchGradient | None = None  # of those that were, without its output
        self._outputs: list[Any] = []

    @property
    def is_complete(self) -> bool:
        """Whether all chunks were added."""
        return self._missing == 0

    def chunks(self, size: int) -> list[Chunk]:
        """The share in chunks of at most `size` entries, none in two of its pieces, precomputed and counted.

        A whole batch that is one chunk settles and counts for itself as it is differentiated. All ranks that share the
        batch count together, once.
        """
        share, context = self.share, self._context
        spans = list(_spans(share.borders or (0, len(share.batch)), size))
        self._sum, self._outputs, self._missing = None, [], len(spans)
        if len(spans) == 1 and share.ranks.size == 1:
            return [Chunk(share.batch, share.noise)]
        chunks, counts = [], {}
        for rows in spans:
            batch, noise = share.batch.part(rows.start, rows.stop), rows_of(share.noise, rows)
            chunks.append(Chunk(batch, noise, self._model.precompute(batch, noise, context)))
            with jt.no_grad():  # nothing else of the objective is computed: Jittor runs what is asked for
                terms = self._model.objective(batch, noise, context, chunks[-1].precomputed).terms
                own = {name: term.count for name, term in terms.items()}
                del terms
                for name, count in own.items():
                    value = float(count.item()) if hasattr(count, "item") else count
                    counts[name] = counts.get(name, 0.0) + value
        self._counts = self._counts or _counts_of_all(share.ranks, counts)
        return chunks

    def add(self, objective: Objective) -> None:
        """Differentiate a chunk's objective; on return the computation has been started, on the CPU it is finished."""
        losses = losses_of(objective, self._counts)
        found = jt.grad(losses[TOTAL], [*self._parameters, *objective.watched.values()])
        gradients, others = [_cut(value) for value in found[: len(self._parameters)]], found[len(self._parameters) :]
        watched = {name: _cut(value) for name, value in zip(objective.watched, others, strict=True)}
        output = mapped(_cut, objective.output)
        one = BatchGradient({name: _cut(value) for name, value in losses.items()}, output, gradients, watched)
        # What is handed on must not keep the graph: its activations would stay beside those of the next chunk or step.
        del objective, losses, found, others
        # A failed allocation is met here, before any weight has changed. And the numbers of a chunk are computed before
        # they are added, as if it stood alone.
        jt.sync([*_values(one), *_leaves(output)])
        self._sum = one if self._sum is None else _added(self._sum, one)
        self._outputs.append(output)
        self._missing -= 1

    def result(self) -> BatchGradient:
        """Losses and gradients of the whole batch, the output of this share; float32.

        All ranks that share the batch call it at the same time.
        """
        found = self._sum
        if len(self._outputs) > 1:
            found = replace(found, output=joined(self._outputs))
        if self.share.ranks.size > 1:
            return _of_all(self.share.ranks, found, np.float32 if self.share.borders is None else np.float64)
        if len(self._outputs) == 1:
            return found
        return _with(found, [_cut(value.float32()) for value in _values(found)])


def losses_of(objective: Objective, counts: Counts) -> dict[str, Var]:
    """The mean of each term, and their weighted sum."""
    terms = objective.terms
    numbers = [(term.total, counts.get(name, term.count), term.margin, term.weight) for name, term in terms.items()]
    return dict(zip((TOTAL, *terms), weighted_means(*zip(*numbers, strict=True)), strict=True))


def joined(outputs: Sequence[Any]) -> Any:
    """The output of a batch from those of its parts."""
    return _mapped(_joined, outputs)


def mapped(function: Callable[[Var], Any], output: Any) -> Any:
    """An output with something else in the place of each Var."""
    return _mapped(lambda _, values: function(values[0]), [output])


def gathered(ranks: Ranks, output: Any) -> Any | None:
    """The output of a shared batch, for rank 0; None for the others."""
    parts = ranks.gather(mapped(lambda value: value.numpy(), output))
    return None if parts is None else joined([mapped(jt.array, part) for part in parts])


def _spans(borders: Sequence[int], chunk: int) -> Iterator[slice]:
    """The pieces between borders, in parts of so many entries."""
    for first, last in itertools.pairwise(borders):
        for start in range(first, last, chunk):
            yield slice(start, min(start + chunk, last))


def _values(found: BatchGradient) -> list[Var]:
    """Gradients, losses and what is watched."""
    return [*found.gradients, *found.losses.values(), *found.watched.values()]


def _with(found: BatchGradient, values: Sequence[Var]) -> BatchGradient:
    """With others in the place of `_values`, computed here."""
    jt.sync(values)
    rest = iter(values)
    gradients = [next(rest) for _ in found.gradients]
    losses, watched = ({name: next(rest) for name in named} for named in (found.losses, found.watched))
    return replace(found, losses=losses, gradients=gradients, watched=watched)


def _added(total: BatchGradient, one: BatchGradient) -> BatchGradient:
    """The sum with one more chunk, in float64; what is watched is of one chunk each."""
    pairs = zip([*total.gradients, *total.losses.values()], _values(one), strict=False)
    sums = [_cut(a.float64() + b.float64()) for a, b in pairs]
    return replace(_with(replace(total, watched={}), sums), watched=total.watched | one.watched)


def _counts_of_all(ranks: Ranks, counts: Counts) -> Counts:
    """The counts of all ranks together."""
    values = np.array(list(counts.values()), np.float64)
    ranks.add(values)
    return dict(zip(counts, values.tolist(), strict=True))


def _of_all(ranks: Ranks, found: BatchGradient, dtype: type[np.floating]) -> BatchGradient:
    """With losses and gradients of all ranks together, by one buffer of this type."""
    places = _values(found)
    ends = np.cumsum([value.numel() for value in places])
    buffer = np.empty(ends[-1], dtype)
    parts = np.split(buffer, ends[:-1])
    for part, value in zip(parts, places, strict=True):
        part[:] = value.numpy().reshape(-1)
    ranks.add(buffer)
    shaped = (part.reshape(value.shape) for part, value in zip(parts, places, strict=True))
    return _with(found, [jt.array(part.astype(np.float32)).stop_grad() for part in shaped])


def _cut(value: Var) -> Var:
    """The same values, off the graph that they came from."""
    return value.detach().stop_grad()


def _leaves(output: Any) -> list[Var]:
    """The Vars of an output, in order."""
    values = [getattr(output, field.name) for field in fields(output)]
    return [leaf for value in values for leaf in (_leaves(value) if is_dataclass(value) else [value])]


def _mapped(function: Callable[[Field, list[Var]], Var], outputs: Sequence[Any]) -> Any:
    """An output each of whose Vars is made of those of `outputs` in its place."""
    changed = {}
    for entry in fields(outputs[0]):
        values = [getattr(output, entry.name) for output in outputs]
        changed[entry.name] = _mapped(function, values) if is_dataclass(values[0]) else function(entry, values)
    return replace(outputs[0], **changed)


def _joined(field: Field, values: list[Var]) -> Var:
    """The rows of several chunks one below the other; what has no row per entry is the same in each."""
    return jt.concat(values, dim=0) if field.metadata.get("rows", True) else values[0]
