"""The ranks of a run: where each is, what it computes on, and how fast they sum what they have."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator

import numpy as np

from models.doctor.line import Line
from models.machine.cuda import driver
from models.machine.ranks.place import own_card
from models.machine.ranks.ranks import Ranks

NUMBERS = 1_416_201  # float32 of the gradients of the released networks, that of the background among them
REPEATS = 10
SLOW = 0.05  # GB/s: below it the gradients alone take longer than a step with a card


def together(ranks: Ranks, gpu: int) -> Iterator[Line]:
    """A line for each rank and one for the sum; all ranks ask at the same time, the first one tells."""
    place, cores = ranks.place, len(os.sched_getaffinity(0))
    found = ranks.everyone((platform.node(), place.local_rank, cores, _card(own_card(gpu, os.environ))))
    for rank, (machine, local, cores, card) in enumerate(found):
        shown = f"{cores} core{'s' if cores > 1 else ''}"
        yield Line(f"rank {rank}", f"{machine}, number {local} of its ranks, {shown}, {card or 'no card'}")
    has_card = [bool(card) for *_, card in found]
    if any(has_card) and not all(has_card):
        without = has_card.index(False)
        yield Line("cards", f"rank {without} has none", "start as many ranks on each machine as it has cards")
    seconds, is_right = _sum(ranks)
    size = 4 * NUMBERS
    rate = size / seconds / 1e9
    wrong = "" if is_right else "the MPI sums wrongly: report it, and use one process"
    if rate < SLOW:
        wrong = wrong or "let MPI use the fast network of the machines: ask who looks after them"
    yield Line("sum over ranks", f"{size / 1e6:.1f} MB in {1e3 * seconds:.1f} ms, {rate:.2f} GB/s", wrong)


def _card(index: int) -> str:
    """The card that a rank would have; "" for none."""
    found = driver.ask(os.environ)
    return f"card {index}: {found.cards[index].name}" if found is not None and index < len(found.cards) else ""


def _sum(ranks: Ranks) -> tuple[float, bool]:
    """The least seconds of a sum, and whether it is right."""
    times, is_right = [], True
    for _ in range(REPEATS):
        values = np.full(NUMBERS, ranks.rank + 1.0, np.float32)
        ranks.barrier()
        begin = time.perf_counter()
        ranks.add(values)
        times.append(time.perf_counter() - begin)
        is_right = is_right and bool((values == ranks.size * (ranks.size + 1) / 2).all())
    return min(times), is_right
