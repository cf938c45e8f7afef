"""Which part of a batch each of several processes takes, and where it is cut, so that all add up the same numbers.

Sums over whole pieces are float64 and rounded once (see `gradient`): who adds up which of them does not count. Where
the conf says how large a chunk is (train.ray_chunk), that is a piece. Otherwise, on the CPU, one, two or three ranks
that mpirun has started cut a batch wherever a share of any of them ends: after a third, a half and two thirds of it.
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

# Numbers of ranks that have the same pieces: four, two for each of two ranks. A piece costs the calls that make its
# graph, 4 ms and more: those that more numbers need would cost small batches much of what ranks bring.
ALIKE = (1, 2, 3)


@dataclass(frozen=True)
class Cut:
    """How batches are cut; neither: each rank has a piece, and memory alone says how much of it is taken at a time."""

    entries: int | None = None  # of a piece
    is_common: bool = False  # wherever a share of any of ALIKE ends


def cut_of(conf: TrainConfig, place: Place) -> Cut:
    """How the batches of a conf are cut by processes of which this is one."""
    if conf.ray_chunk != AUTO:
        return Cut(entries=int(conf.ray_chunk))
    return Cut(is_common=bool(place.starter) and backend.device_info().name == "cpu")


@dataclass(frozen=True)
class Share:
    """What a rank takes of a batch."""

    batch: Batch
    noise: Noise | None
    ranks: Ranks = ALONE  # by whom the batch is shared; ALONE where every rank takes all of it
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
        return Share(batch, noise, borders=found)
    if found is not None:
        found = of_rank(found, rows, ranks.rank, ranks.size)
        rows = slice(found[0], found[-1])
        found = [border - rows.start for border in found]
    return Share(batch.part(rows.start, rows.stop), rows_of(noise, rows), ranks, found)


def rows_of(noise: Noise | None, rows: slice) -> Noise | None:
    """The jitter of some entries."""
    return None if noise is None else {name: array[rows] for name, array in noise.items()}


def borders(model: Model, batch: Batch, cut: Cut, ranks: int) -> list[int] | None:
    """Where pieces begin, and the number of entries; None where they are no whole pieces, or too few for the ranks."""
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
    """The borders of the pieces that a rank takes, at least one, for which these rows would be a fair share."""
    first, last = (_nearest(borders, row, index, ranks) for row, index in ((rows.start, rank), (rows.stop, rank + 1)))
    return borders[first : last + 1]


def _nearest(borders: Sequence[int], row: int, index: int, ranks: int) -> int:
    """Which border is nearest to a row at which a rank, the index-th of all, begins; all ranks have a piece."""
    pieces = len(borders) - 1
    if index == ranks:
        return pieces
    after = bisect.bisect_left(borders, row)
    is_before = after > 0 and row - borders[after - 1] <= borders[after] - row
    return min(max(after - is_before, index), pieces - ranks + index)
