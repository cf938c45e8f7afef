"""How much memory there is, how much a piece of work takes, and the largest chunk of it that fits.

What a piece of work takes is measured, never guessed. Jittor's allocator keeps the blocks it once asked for until
`release` hands them back, so the size of its pool after the work is the peak of the work. Unlike the resident size of
the process, it is the same each time the same work is done. Bytes everywhere; 1 GB is 10^9 of them.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from data.errors import is_allocation_failure
from models.machine import backend
from models.machine.available import available_bytes
from models.machine.backend import jt
from models.machine.ranks.place import here

GB = 10**9
MARGIN_SHARE = 0.1  # of what is free: other programs, and what the pool loses between blocks in a long run
PROBE_HALVINGS = 3  # the first probe takes an eighth of the work: small enough to be safe, large enough to tell
SAFE_SHARE = 0.5  # of the budget; a bound below it needs no further measurement


@dataclass(frozen=True)
class Choice:
    """A chunk and what was found out about it."""

    chunk: int
    peak: int  # measured, or the bound that made a measurement needless
    fits: bool  # False: not even the smallest chunk does


def pool_bytes() -> int:
    """What Jittor's allocator holds on the device, in use or not."""
    held = jt.get_mem_info()
    return held.total_cuda_used if backend.device_info().name == "cuda" else held.total_cpu_used


def release() -> None:
    """Finish all pending work, and hand the blocks that nothing uses back to the system."""
    jt.sync_all(True)
    jt.gc()


def let_go(error: BaseException) -> None:
    """After an allocation that failed: drop what the failed work holds, and `release`.

    The frames that `error` passed through keep arrays that were to be computed: whatever waits for all arrays would
    compute them again, and fail again.
    """
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
    release()


def free_bytes() -> int:
    """Memory of the device that the process may still take; in a container, at most what its limit leaves.

    Ranks on one machine have equal shares of its main memory.
    """
    if backend.device_info().name == "cuda":
        return backend.device_free_bytes()
    return available_bytes() // here().local_size


def budget(memory_limit: float | str) -> int:
    """What the pool may grow by from now on; call it after `release`. Below 0 where the limit is exceeded already.

    memory_limit: GB of the process, resident on the CPU, in Jittor's pool on CUDA; "auto": what is free, less a margin.
    """
    if isinstance(memory_limit, str):
        return int(free_bytes() * (1.0 - MARGIN_SHARE))
    return int(memory_limit * GB) - held_bytes()


def held_bytes() -> int:
    """What counts towards a limit: all that is resident on the CPU, Jittor's pool on CUDA."""
    return pool_bytes() if backend.device_info().name == "cuda" else backend.resident_bytes()


def growth(work: Callable[[], object]) -> int:
    """By how much the pool grows at the peak of `work`; its results are dropped."""
    release()
    before = pool_bytes()
    work()
    jt.sync_all(True)
    peak = pool_bytes() - before
    release()
    return peak


def halvings(most: int) -> list[int]:
    """most, half of it, a quarter, ... 1, each rounded up: few sizes, so that a choice hardly hangs on a megabyte."""
    sizes = [most]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 2))
    return sizes


def largest_chunk(most: int, measure: Callable[[int], int], left: Callable[[], int]) -> Choice:
    """The largest of `halvings(most)` whose work fits.

    A small probe comes first, so that nothing is tried that is foreseen not to fit.

    Args:
        measure: chunk -> bytes at its peak; grows with the chunk at most in proportion, beyond a fixed part. Where
            memory runs out meanwhile the chunk does not fit; that of 1 raises what it met.
        left: bytes there are; asked after the first probe, which loads what any work needs.
    """
    sizes, has_failed = halvings(most), False
    while math.isinf(peak := _peak(measure, sizes[large := _probe(sizes)])):
        sizes, has_failed = sizes[large + 1 :], True
    measured = {sizes[large]: peak}
    allowed = left()
    bound = peak * sizes[0] // sizes[large]  # counts the fixed part several times
    if bound <= SAFE_SHARE * allowed and not has_failed:
        return Choice(most, bound, True)
    small = min(large + 1, len(sizes) - 1)
    if small != large:
        measured[sizes[small]] = _peak(measure, sizes[small])
    foreseen = _line(sizes[small], measured[sizes[small]], sizes[large], measured[sizes[large]])
    for size in sizes:
        if size > sizes[large] and foreseen(size) > allowed:
            continue
        peak = measured[size] if size in measured else _peak(measure, size)
        if peak <= allowed:
            return Choice(size, peak, True)
    return Choice(1, peak, False)


def chunk_that_fits(most: int, work: Callable[[int], object], memory_limit: float | str, extra: int = 0) -> Choice:
    """`largest_chunk` of a piece of work, measured as it is done for chunks, beside `extra` bytes; see `budget`."""
    release()
    return largest_chunk(most, lambda size: extra + growth(lambda: work(size)), lambda: budget(memory_limit))


def _probe(sizes: list[int]) -> int:
    """Which of the sizes is measured first: such that there is a smaller one, to tell the slope."""
    return max(0, min(PROBE_HALVINGS, len(sizes) - 2))


def _peak(measure: Callable[[int], int], size: int) -> float:
    """What a chunk takes; infinity where memory runs out as it is measured, which a chunk of 1 raises."""
    try:
        return measure(size)
    except (MemoryError, RuntimeError) as error:
        if size == 1 or not is_allocation_failure(error):
            raise
        let_go(error)
        return math.inf


def _line(small: int, at_small: float, large: int, at_large: float) -> Callable[[int], float]:
    """Bytes of a chunk, foreseen from two measured ones; at least in proportion where the two tell no slope."""
    slope = (at_large - at_small) / (large - small) if large > small else 0.0
    if slope <= 0.0:
        return lambda size: at_large / large * size
    return lambda size: at_large + slope * (size - large)
