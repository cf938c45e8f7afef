"""Memory of the device: what is free, what a computation takes, and the largest chunk that fits.

Jittor's allocator keeps its blocks until `release`, so the size of its pool after a computation is the peak of the
computation. Unlike the resident size of the process, this value is reproducible. All sizes are bytes; 1 GB is 10^9.
"""

from __future__ import annotations

import ctypes
import gc
import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from data.errors import is_allocation_failure
from models.machine import backend
from models.machine.available import available_bytes, resident_bytes
from models.machine.backend import choice, jt

GB = 10**9
MARGIN_SHARE = 0.1  # of the free memory: for other programs and for fragmentation of the pool
PROBE_HALVINGS = 3  # the first probe is an eighth of the work: small enough to fit, large enough to extrapolate
SAFE_SHARE = 0.5  # of the budget; an upper bound below it needs no further measurement


@dataclass(frozen=True)
class Choice:
    """The chosen chunk and its memory."""

    chunk: int
    peak: float  # bytes, measured, or an upper bound
    fits: bool  # False: not even the smallest chunk does


def pool_bytes() -> int:
    """The size of Jittor's memory pool on the device, in use or not."""
    held = jt.get_mem_info()
    return held.total_cuda_used if backend.device_info().name == "cuda" else held.total_cpu_used


def release() -> None:
    """Finish all pending work and return unused blocks of Jittor's pool and of the C heap to the system."""
    jt.sync_all(True)
    jt.gc()
    # glibc keeps what was freed on the heap: 290 MB of the 500 MB after a training, which the next arrays add to.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc only
    if trim is not None:
        trim(0)


def release_all() -> None:
    """`release`, also of unreachable objects in reference cycles, such as a model that is no longer used."""
    gc.collect()
    release()


def release_after_failure(error: BaseException) -> None:
    """After a failed allocation: drop the arrays of the failed computation, and `release`.

    The frames in the traceback of `error` reference arrays that are still to be computed. The next synchronisation
    would compute them again, and fail again.
    """
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
    release()


def budget(memory_limit: float | str) -> int:
    """The bytes by which the pool may grow; call it after `release`. Negative if the limit is already exceeded.

    memory_limit: GB, of the resident size on the CPU, of Jittor's pool on CUDA; "auto": free memory less a margin,
    within the limits of a container; processes of one training on one machine have equal shares of its main memory.
    """
    if isinstance(memory_limit, str):
        is_gpu = backend.device_info().name == "cuda"
        free = backend.device_free_bytes() if is_gpu else available_bytes() // choice.processes
        return int(free * (1.0 - MARGIN_SHARE))
    return int(memory_limit * GB) - held_bytes()


def held_bytes() -> int:
    """The memory that counts towards a limit: the resident size on the CPU, Jittor's pool on CUDA."""
    return pool_bytes() if backend.device_info().name == "cuda" else resident_bytes()


def growth(work: Callable[[], object]) -> int:
    """The growth of the pool during `work`, whose results are dropped."""
    release()
    before = pool_bytes()
    work()
    jt.sync_all(True)
    peak = pool_bytes() - before
    release()
    return peak


def halvings(most: int) -> list[int]:
    """most, most / 2, most / 4, ... 1, rounded up. Few sizes make the choice insensitive to small differences."""
    return [-(-most // 2**power) for power in range((most - 1).bit_length() + 1)]


def largest_chunk(most: int, measure: Callable[[int], int], left: Callable[[], int]) -> Choice:
    """The largest of `halvings(most)` whose computation fits.

    A small probe is measured first, so that sizes that are predicted not to fit are not tried.

    Args:
        measure: chunk -> peak bytes: a fixed part and one at most proportional to the chunk. A chunk during which
            memory runs out does not fit; for a chunk of 1 the exception is raised.
        left: the available bytes; called after the first probe, which allocates the fixed part.
    """
    sizes, has_failed = halvings(most), False
    while True:
        large = max(0, min(PROBE_HALVINGS, len(sizes) - 2))  # if possible, a smaller size exists for the slope
        if not math.isinf(peak := _peak(measure, sizes[large])):
            break
        sizes, has_failed = sizes[large + 1 :], True
    measured = {sizes[large]: peak}
    allowed = left()
    bound = peak * sizes[0] // sizes[large]  # an upper bound: it counts the fixed part several times
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
    """`largest_chunk` for a computation that is measured by running it, plus `extra` bytes; see `budget`."""
    release()
    return largest_chunk(most, lambda size: extra + growth(lambda: work(size)), lambda: budget(memory_limit))


def _peak(measure: Callable[[int], int], size: int) -> float:
    """The memory of a chunk; infinity if memory runs out, except for a chunk of 1, which raises."""
    try:
        return measure(size)
    except (MemoryError, RuntimeError) as error:
        if size == 1 or not is_allocation_failure(error):
            raise
        release_after_failure(error)
        return math.inf


def _line(small: int, at_small: float, large: int, at_large: float) -> Callable[[int], float]:
    """Linear extrapolation of the bytes of a chunk from two measurements; proportional if the slope is not positive."""
    slope = (at_large - at_small) / (large - small) if large > small else 0.0
    if slope <= 0.0:
        return lambda size: at_large / large * size
    return lambda size: at_large + slope * (size - large)
