"""The lines about the ranks of a run: machine, cores and GPU of each, and the speed of their sums."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator

import numpy as np

from models.doctor.line import Line
from models.machine.cuda import driver
from models.machine.ranks.place import own_gpu
from models.machine.ranks.ranks import Ranks

NUMBERS = 1_416_201  # float32 values: the gradients of the published networks with background
REPEATS = 10
SLOW = 0.05  # GB/s; below, summing the gradients takes longer than a step on a GPU


def together(ranks: Ranks, gpu: int) -> Iterator[Line]:
    """A line for each rank and one for the sum; must be called by all ranks, rank 0 prints the lines."""
    place, cores = ranks.place, len(os.sched_getaffinity(0))
    found = ranks.everyone((platform.node(), place.local_rank, cores, _name_of(own_gpu(gpu, os.environ))))
    for rank, (machine, local, cores, device) in enumerate(found):
        shown = f"{cores} core{'s' if cores > 1 else ''}"
        yield Line(f"rank {rank}", f"{machine}, number {local} of its ranks, {shown}, {device or 'no GPU'}")
    has_gpu = [bool(device) for *_, device in found]
    if any(has_gpu) and not all(has_gpu):
        without = has_gpu.index(False)
        yield Line("GPUs", f"rank {without} has none", "start as many ranks on each machine as it has GPUs")
    seconds, is_right = _sum(ranks)
    size = 4 * NUMBERS
    rate = size / seconds / 1e9
    wrong = "" if is_right else "MPI computes wrong sums: report it, and use one process"
    if rate < SLOW:
        wrong = wrong or "configure MPI to use the fast network; ask the administrators of the machines"
    yield Line("sum over ranks", f"{size / 1e6:.1f} MB in {1e3 * seconds:.1f} ms, {rate:.2f} GB/s", wrong)


def _name_of(index: int) -> str:
    """The GPU of a rank; "" for none."""
    found = driver.ask(os.environ)
    return f"GPU {index}: {found.gpus[index].name}" if found is not None and index < len(found.gpus) else ""


def _sum(ranks: Ranks) -> tuple[float, bool]:
    """The shortest time of a sum in seconds, and whether the sums are correct."""
    times, is_right = [], True
    for _ in range(REPEATS):
        values = np.full(NUMBERS, ranks.rank + 1.0, np.float32)
        ranks.barrier()
        begin = time.perf_counter()
        ranks.add(values)
        times.append(time.perf_counter() - begin)
        is_right = is_right and bool((values == ranks.size * (ranks.size + 1) / 2).all())
    return min(times), is_right
