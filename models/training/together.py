"""The gradient of a step whose batch several processes share: each takes its part of it, and all get the whole.

A rank's part is to the batch what chunks are: counts are summed first, then losses and gradients, in one flat buffer.
Where ranks take whole pieces (see `pieces`) the buffer is float64: then one process and any number of ranks add up the
same numbers, to the same sums.
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
from models.training.pieces import Cut, borders, of_rank

Found = TypeVar("Found")
Retried = Callable[[Callable[[], Found]], Found]  # does it again, with a smaller chunk, where memory ends


@dataclass(frozen=True)
class Share:
    """What a rank takes of a batch."""

    batch: Batch
    noise: Noise | None
    is_all: bool = False  # every rank takes all of it, for it cannot be shared
    # Where its pieces begin, and its length; None where there are none that all ranks know of.
    borders: Sequence[int] | None = None

    @property
    def longest(self) -> int:
        """Entries of its largest piece."""
        return int(np.diff(self.borders or (0, len(self.batch))).max())


def share_of(model: Model, batch: Batch, noise: Noise | None, ranks: Ranks, cut: Cut) -> Share:
    """The part of the rank that this is, of whole pieces where there is one for each rank."""
    found = borders(model, batch, cut, ranks.size)
    rows = model.share(batch, ranks.rank, ranks.size) if ranks.size > 1 else None
    if rows is None:
        return Share(batch, noise, is_all=True, borders=found)
    if found is not None:
        found = of_rank(found, rows, ranks.rank, ranks.size)
        rows = slice(found[0], found[-1])
        found = [border - rows.start for border in found]
    jitter = None if noise is None else {name: array[rows] for name, array in noise.items()}
    return Share(batch.part(rows.start, rows.stop), jitter, borders=found)


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
        return settle_batch(model, share.batch, share.noise, moment, chunk(), share.borders, is_whole=False)

    chunks, own = retried(settled)
    counts = _added(ranks, own)
    ready = [chunks]
    del chunks
    found = retried(
        lambda: of_chunks(
            model, ready.pop() if ready else settled()[0], counts, moment, parameters, is_rounded=share.borders is None
        )
    )
    return _summed(ranks, found, np.float32 if share.borders is None else np.float64)


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
