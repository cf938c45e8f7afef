"""The share of a batch that each rank computes, in pieces such that all ranks obtain the same sums.

Sums over whole pieces are float64 and rounded once (see `gradient`), so the result does not depend on which rank adds
which piece. If the conf sets the chunk size (train.ray_chunk), a chunk is a piece. Otherwise, on the CPU, one, two or
three ranks started by mpirun split a batch after a third, a half and two thirds, where a share of any of them ends.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.config.blocks import TrainConfig
from models.config.strict import AUTO
from models.machine import backend
from models.machine.ranks.place import Place
from models.machine.ranks.ranks import ALONE, Ranks
from models.methods.protocol import Batch, Model, Noise

# Numbers of ranks with equal pieces: four, so two for each of two ranks. A piece costs the calls that build its graph,
# 4 ms and more; more pieces would cost small batches much of the gain of several ranks.
ALIKE = (1, 2, 3)


@dataclass(frozen=True)
class Cut:
    """How batches are split; neither: each rank has one piece, split only by memory."""

    entries: int | None = None  # size of a piece
    is_common: bool = False  # split at the ends of the shares of ALIKE ranks


def cut_of(conf: TrainConfig, place: Place) -> Cut:
    """How this process splits the batches of a conf."""
    if conf.ray_chunk != AUTO:
        return Cut(entries=int(conf.ray_chunk))
    return Cut(is_common=bool(place.starter) and backend.device_info().name == "cpu")


@dataclass(frozen=True)
class Share:
    """The share of a rank."""

    batch: Batch
    noise: Noise | None
    ranks: Ranks = ALONE  # the ranks that share the batch; ALONE if every rank computes all of it
    # The starts of its pieces, and its length; None if there are no pieces known to all ranks.
    borders: Sequence[int] | None = None

    @property
    def longest(self) -> int:
        """Entries of its largest piece."""
        return int(np.diff(self.borders or (0, len(self.batch))).max())


def share_of(model: Model, batch: Batch, noise: Noise | None, ranks: Ranks, cut: Cut) -> Share:
    """The share of this rank, in whole pieces if there is at least one per rank."""
    found = borders(model, batch, cut, ranks.size)
    rows = model.share(batch, ranks.rank, ranks.size) if ranks.size > 1 else None
    if rows is None:
        return Share(batch, noise, borders=found)
    if found is not None:
        found = of_rank(found, rows, ranks.rank, ranks.size)
        rows = slice(found[0], found[-1])
        found = [border - rows.start for border in found]
    return Share(batch.part(rows.start, rows.stop), rows_of(noise, rows), ranks, found)


def rows_of(noise: Noise | None, rows: slice) -> Noise | None:
    """The jitter of a range of entries."""
    return None if noise is None else {name: array[rows] for name, array in noise.items()}


def borders(model: Model, batch: Batch, cut: Cut, ranks: int) -> list[int] | None:
    """The starts of pieces and the number of entries; None if there are no whole pieces, or too few for the ranks."""
    if cut.entries is not None:
        found = [*range(0, len(batch), cut.entries), len(batch)]
        return found if len(found) > ranks else None
    if not cut.is_common or ranks not in ALIKE:
        return None
    parts = [model.share(batch, number, count) for count in ALIKE for number in range(count)]
    if any(part is None for part in parts):
        return None
    return [*sorted({part.start for part in parts}), len(batch)]


def of_rank(borders: Sequence[int], rows: slice, rank: int, ranks: int) -> Sequence[int]:
    """The borders of the pieces of a rank, at least one, closest to an equal share of rows."""
    first, last = (_nearest(borders, row, index, ranks) for row, index in ((rows.start, rank), (rows.stop, rank + 1)))
    return borders[first : last + 1]


def _nearest(borders: Sequence[int], row: int, index: int, ranks: int) -> int:
    """The border nearest to the row where rank `index` would start; every rank has a piece."""
    pieces = len(borders) - 1
    if index == ranks:
        return pieces
    after = bisect.bisect_left(borders, row)
    is_before = after > 0 and row - borders[after - 1] <= borders[after] - row
    return min(max(after - is_before, index), pieces - ranks + index)
