"""The gradient of a step whose batch several processes share: each takes its part of it, and all get the whole.

A rank's part is to the batch what chunks are: counts are summed first, then losses and gradients, in one flat buffer.
Where the conf says how large a chunk is, ranks take whole chunks and the buffer is float64 (see `gradient`): then one
process and any number of ranks add up the same numbers, to the same sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from models.kinds.protocol import Batch, Model, Moment, Noise
from models.machine.backend import jt
from models.machine.ranks.ranks import Ranks
from models.structs import Var
from models.training.gradient import BatchGradient, Chunk, Counts, joined, mapped, of_chunks, settle_batch

Found = TypeVar("Found")
Retried = Callable[[Callable[[], Found]], Found]  # does it again, with a smaller chunk, where memory ends


@dataclass(frozen=True)
class Share:
    """What a rank takes of a batch."""

    batch: Batch
    noise: Noise | None
    is_all: bool = False  # every rank takes all of it, for it cannot be shared
    is_in_pieces: bool = False  # all ranks take whole pieces


def share_of(model: Model, batch: Batch, noise: Noise | None, ranks: Ranks, piece: int | None = None) -> Share:
    """The part of the rank that this is, of pieces of so many entries where there is one for each rank."""
    rows = model.share(batch, ranks.rank, ranks.size) if ranks.size > 1 else None
    if rows is None:
        return Share(batch, noise, is_all=True)
    is_in_pieces = piece is not None and -(-len(batch) // piece) >= ranks.size
    if is_in_pieces:
        ends = ((ranks.rank, rows.start), (ranks.rank + 1, rows.stop))
        rows = slice(*(between_pieces(border, index, len(batch), piece, ranks.size) for index, border in ends))
    jitter = None if noise is None else {name: array[rows] for name, array in noise.items()}
    return Share(batch.part(rows.start, rows.stop), jitter, is_in_pieces=is_in_pieces)


def between_pieces(border: int, index: int, entries: int, piece: int, ranks: int) -> int:
    """The border of two shares, the index-th of all, moved to one of pieces; each rank has a piece."""
    if index == ranks:
        return entries
    return piece * min(max(round(border / piece), index), -(-entries // piece) - ranks + index)


def differentiate_together(
    model: Model,
    share: Share,
    moment: Moment,
    parameters: Sequence[Var],
    ranks: Ranks,
    chunk: Callable[[], int],
    retried: Retried,
) -> BatchGradient:
    """Losses and gradients of the whole batch, the output of this share; all ranks call it at the same time.

    `chunk` says how many entries are taken at a time, anew where memory has ended. What a rank does again it does by
    itself: nothing is said to the others within.
    """

    def settled() -> tuple[list[Chunk], Counts]:
        return settle_batch(model, share.batch, share.noise, moment, chunk(), is_whole=False)

    chunks, own = retried(settled)
    counts = _added(ranks, own)
    ready = [chunks]
    del chunks
    found = retried(
        lambda: of_chunks(
            model, ready.pop() if ready else settled()[0], counts, moment, parameters, is_rounded=not share.is_in_pieces
        )
    )
    return _summed(ranks, found, np.float64 if share.is_in_pieces else np.float32)


def _added(ranks: Ranks, counts: Counts) -> Counts:
    """The counts of all ranks together."""
    values = np.array(list(counts.values()), np.float64)
    ranks.add(values)
    return dict(zip(counts, values.tolist(), strict=True))


def _summed(ranks: Ranks, found: BatchGradient, dtype: type[np.floating]) -> BatchGradient:
    """With losses and gradients of all ranks together, by one buffer of this type."""
    places = [*found.gradients, *found.losses.values(), *found.watched.values()]
    ends = np.cumsum([value.numel() for value in places])
    buffer = np.empty(ends[-1], dtype)
    for part, value in zip(np.split(buffer, ends[:-1]), places, strict=True):
        part[:] = value.numpy().reshape(-1)
    ranks.add(buffer)
    whole = [
        jt.array(part.reshape(value.shape).astype(np.float32)).stop_grad()
        for part, value in zip(np.split(buffer, ends[:-1]), places, strict=True)
    ]
    jt.sync(whole)
    gradients, rest = whole[: len(found.gradients)], whole[len(found.gradients) :]
    losses = dict(zip(found.losses, rest, strict=False))
    watched = dict(zip(found.watched, rest[len(losses) :], strict=True))
    return replace(found, losses=losses, gradients=gradients, watched=watched)


def gathered(ranks: Ranks, output: Any) -> Any | None:
    """The output of a shared batch, for rank 0; None for the others."""
    parts = ranks.gather(mapped(lambda value: value.numpy(), output))
    return None if parts is None else joined([mapped(jt.array, part) for part in parts])
