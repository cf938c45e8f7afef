"""The gradient of a step: a batch as chunks, of which only one lives at a time. In one piece it is one chunk.

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

from models.kinds.protocol import Batch, Model, Moment, Noise, Settled
from models.machine.backend import jt
from models.ops.weighted_means import weighted_means
from models.structs import Objective, Var

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
    settled: Settled = None


def differentiate(
    model: Model, batch: Batch, noise: Noise | None, moment: Moment, parameters: Sequence[Var], chunk: int
) -> BatchGradient:
    """Losses and gradients of a batch, `chunk` entries at a time; the chunk changes memory, and roundings only.

    The computation has been started on return; on the CPU it is finished.
    """
    chunks, counts = settle_batch(model, batch, noise, moment, chunk)
    return of_chunks(model, chunks, counts, moment, parameters)


def of_chunks(
    model: Model,
    chunks: Sequence[Chunk],
    counts: Counts,
    moment: Moment,
    parameters: Sequence[Var],
    is_rounded: bool = True,
) -> BatchGradient:
    """Losses and gradients of chunks whose terms have these counts in all; see `differentiate`.

    Unless they are to be rounded, those of more than one chunk are float64.
    """
    found: list[BatchGradient] = []
    gradients: list[Var] = []
    for part in chunks:
        objective = model.objective(part.batch, part.noise, moment, part.settled)
        one = _gradient(objective, parameters, counts)
        del objective
        # What is handed on must not keep the graph: its activations would stay beside those of the next chunk or step.
        # A failed allocation is met here, before any weight has changed. And the numbers of a chunk are computed before
        # they are added, as if it stood alone.
        jt.sync([*one.gradients, *one.losses.values(), *one.watched.values(), *_leaves(one.output)])
        if len(chunks) == 1:
            return one
        wide = [value.float64() for value in one.gradients]
        gradients = [_cut(total + value) for total, value in zip(gradients, wide, strict=True)] if found else wide
        jt.sync(gradients)
        found.append(replace(one, gradients=[]))
    losses = {name: _sum([one.losses[name].float64() for one in found]) for name in found[0].losses}
    watched = {name: value for one in found for name, value in one.watched.items()}
    total = BatchGradient(losses, joined([one.output for one in found]), gradients, watched)
    return _rounded(total) if is_rounded else total


def _rounded(found: BatchGradient) -> BatchGradient:
    """With float32 losses and gradients."""
    losses = {name: _cut(value.float32()) for name, value in found.losses.items()}
    gradients = [_cut(value.float32()) for value in found.gradients]
    jt.sync([*gradients, *losses.values()])
    return replace(found, losses=losses, gradients=gradients)


def joined(outputs: Sequence[Any]) -> Any:
    """The output of a batch from those of its parts."""
    return _mapped(_joined, outputs)


def mapped(function: Callable[[Var], Any], output: Any) -> Any:
    """An output with something else in the place of each Var."""
    return _mapped(lambda _, values: function(values[0]), [output])


def settle_batch(
    model: Model,
    batch: Batch,
    noise: Noise | None,
    moment: Moment,
    chunk: int,
    borders: Sequence[int] | None = None,
    is_whole: bool = True,
) -> tuple[list[Chunk], Counts]:
    """The chunks of a batch with what is settled of each, and the count of each term over all of them.

    `borders`: where its pieces begin, and its length; no chunk lies in two of them. A batch that is one chunk settles
    and counts for itself as it is differentiated, unless it is not the whole one.
    """
    spans = list(_spans(borders or (0, len(batch)), chunk))
    if len(spans) == 1 and is_whole:
        return [Chunk(batch, noise)], {}
    chunks, counts = [], {}
    for start, stop in spans:
        part, rows = batch.part(start, stop), slice(start, stop)
        jitter = None if noise is None else {name: array[rows] for name, array in noise.items()}
        chunks.append(Chunk(part, jitter, model.settle(part, jitter, moment)))
        for name, count in _counts(model, chunks[-1], moment).items():
            counts[name] = counts.get(name, 0.0) + count
    return chunks, counts


def _spans(borders: Sequence[int], chunk: int) -> Iterator[tuple[int, int]]:
    """The pieces between borders, in parts of so many entries."""
    for first, last in itertools.pairwise(borders):
        for start in range(first, last, chunk):
            yield start, min(start + chunk, last)


def _counts(model: Model, chunk: Chunk, moment: Moment) -> Counts:
    """The count of each term. Nothing else of the objective is computed: Jittor runs what is asked for."""
    with jt.no_grad():
        terms = model.objective(chunk.batch, chunk.noise, moment, chunk.settled).terms
        counts = {name: term.count for name, term in terms.items()}
        del terms
        return {name: float(count.item()) if hasattr(count, "item") else count for name, count in counts.items()}


def _gradient(objective: Objective, parameters: Sequence[Var], counts: Counts) -> BatchGradient:
    """Losses of some entries and their gradients, off the graph."""
    losses = losses_of(objective, counts)
    found = jt.grad(losses[TOTAL], [*parameters, *objective.watched.values()])
    gradients, others = found[: len(parameters)], found[len(parameters) :]
    watched = {name: _cut(value) for name, value in zip(objective.watched, others, strict=True)}
    gradients = [_cut(value) for value in gradients]
    output = _mapped(lambda _, values: _cut(values[0]), [objective.output])
    return BatchGradient({name: _cut(value) for name, value in losses.items()}, output, gradients, watched)


def losses_of(objective: Objective, counts: Counts) -> dict[str, Var]:
    """The mean of each term, and their weighted sum."""
    terms = objective.terms
    numbers = [(term.total, counts.get(name, term.count), term.margin, term.weight) for name, term in terms.items()]
    return dict(zip((TOTAL, *terms), weighted_means(*zip(*numbers, strict=True)), strict=True))


def _sum(values: Sequence[Var]) -> Var:
    """Their sum, in order."""
    return sum(values[1:], start=values[0])


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
