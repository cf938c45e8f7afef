"""Communication between ranks; a single process is rank 0 of one.

Messages use MPI (mpi4py), which is not imported for a single process. Waiting polls with short sleeps, so that signals
and failures of other ranks are noticed, and ranks that share a core do not block each other.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from data.errors import UserError, is_allocation_failure, listed
from models.machine.ranks import place as places
from models.machine.ranks.place import Place

if TYPE_CHECKING:  # NumPy reads environment variables that are set before it is imported
    import numpy as np

Result = TypeVar("Result")

TAG_RESULT, TAG_TOLD, TAG_FAILED = 1, 2, 3
SPIN_SECONDS = 2e-4  # of polling without sleep: most messages within a machine arrive in this time
FIRST_SLEEP, LONGEST_SLEEP = 2e-5, 1e-3
FAREWELL_SECONDS = 8.0  # that a failed rank waits for rank 0 to save and to end all ranks
# Numbers per message in sums on one machine: they fit into the cache together with MPI's buffer. Between machines each
# message has a latency, so one message is used.
SUM_BLOCK = 1 << 17
MACHINE = "machine"  # key of the host name in the comparison of ranks
MISSING = (
    "{starter} started {size} processes, and the Python package mpi4py is missing: "
    "run `pip install -r requirements-mpi.txt`, or start one process"
)


class AbandonedError(Exception):
    """A signal arrived while ranks waited for each other; the collective operation had no effect."""


class RankFailedError(UserError):
    """Another rank failed; the message is that rank's."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Ranks:
    """The ranks of a run. This base class is a single process, for which collective operations are trivial."""

    place = Place()

    @property
    def rank(self) -> int:
        """The index of this rank."""
        return self.place.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.place.size

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes all files."""
        return self.place.rank == 0

    def add(self, values: np.ndarray) -> None:
        """Replace float32 or float64 values by their sums over all ranks, bitwise equal on all ranks."""

    def gather(self, value: Any) -> list[Any] | None:
        """The values of all ranks, in rank order, on rank 0; None on the others."""
        return [value]

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value."""
        return value

    def everyone(self, value: Any) -> list[Any]:
        """The values of all ranks, in rank order, on every rank."""
        return self.broadcast(self.gather(value))

    def everyones(self, work: Callable[[], Result]) -> list[Result]:
        """The results of `work` of all ranks, on every rank; out of memory on one rank raises MemoryError on all."""
        if self.size == 1:
            return [work()]
        try:
            found = self.everyone((work(), None))
        except (MemoryError, RuntimeError) as error:
            if not is_allocation_failure(error):
                raise
            found = self.everyone((None, f"rank {self.rank}: {error}"))
        for _, failure in found:
            if failure is not None:
                raise MemoryError(failure)
        return [value for value, _ in found]

    def barrier(self) -> None:
        """Wait until all ranks have called this."""

    def part(self, count: int) -> slice:
        """The share of this rank in a sequence of `count` items."""
        start, stop = (count * rank // self.size for rank in (self.rank, self.rank + 1))
        return slice(start, stop)

    def fail(self, sentence: str, status: int) -> None:
        """Report a failure of this rank to rank 0, and wait for it to end all ranks."""

    def close(self) -> None:
        """Finish the communication."""

    # Whether a signal arrived, which ends all waiting; set by the signal handlers.
    stopping: Callable[[], bool] = staticmethod(lambda: False)


ALONE = Ranks()


class MpiRanks(Ranks):
    """Several ranks, connected by MPI."""

    def __init__(self, place: Place, mpi: Any) -> None:
        """`mpi`: the module mpi4py.MPI. Raises UserError if MPI and the environment disagree on the ranks."""
        self.place = place
        self._mpi = mpi
        if not mpi.Is_initialized():
            mpi.Init_thread(mpi.THREAD_SINGLE)
        world = mpi.COMM_WORLD
        if (world.rank, world.size) != (place.rank, place.size):
            raise UserError(
                f"{place.starter} started {place.size} processes and MPI sees {world.size}: start them with the mpirun "
                "that mpi4py was built for, or with srun --mpi=pmix"
            )
        self._world, self._alarm = world.Dup(), world.Dup()

    def add(self, values: np.ndarray) -> None:
        """See `Ranks`."""
        if not values.flags.c_contiguous:
            raise ValueError("only contiguous arrays can be summed in place")
        flat = values.reshape(-1)
        block = SUM_BLOCK if self.place.local_size == self.size else max(1, values.size)
        for start in range(0, values.size, block):
            self._wait(self._world.Iallreduce(self._mpi.IN_PLACE, flat[start : start + block]).Test)

    def gather(self, value: Any) -> list[Any] | None:
        """See `Ranks`."""
        if not self.is_first:
            self._wait(self._done(self._world.isend(value, 0, TAG_RESULT)))
            return None
        return [value, *(self._receive(rank, TAG_RESULT) for rank in range(1, self.size))]

    def broadcast(self, value: Any) -> Any:
        """See `Ranks`."""
        if not self.is_first:
            return self._receive(0, TAG_TOLD)
        for request in [self._world.isend(value, rank, TAG_TOLD) for rank in range(1, self.size)]:
            self._wait(self._done(request))
        return value

    def barrier(self) -> None:
        """See `Ranks`."""
        self._wait(self._world.Ibarrier().Test)

    def send(self, rank: int, value: Any) -> None:
        """Send a value to a rank."""
        self._wait(self._done(self._world.isend(value, rank, TAG_TOLD)))

    def has_sent(self, rank: int) -> bool:
        """Whether `receive` would return without waiting."""
        return self._world.iprobe(rank, TAG_TOLD)

    def receive(self, rank: int) -> Any:
        """The next value that a rank has sent."""
        return self._receive(rank, TAG_TOLD)

    def fail(self, sentence: str, status: int) -> None:
        """See `Ranks`. A failure of rank 0 is not reported: the starter ends the other ranks."""
        if self.is_first or self._mpi.Is_finalized():
            return
        where = f"rank {self.rank} ({platform.node()}): {sentence}"
        request = self._alarm.isend((where, status), 0, TAG_FAILED)
        until = time.monotonic() + FAREWELL_SECONDS
        while time.monotonic() < until:
            request.test()
            time.sleep(LONGEST_SLEEP)

    def close(self) -> None:
        """See `Ranks`; raises AbandonedError or RankFailedError if other ranks do not finish."""
        self.barrier()
        self._mpi.Finalize()

    def _receive(self, rank: int, tag: int) -> Any:

        self._wait(lambda: self._world.iprobe(rank, tag))
        return self._world.recv(source=rank, tag=tag)

    def _done(self, request: Any) -> Callable[[], bool]:
        """A function that returns whether a request is complete."""
        return lambda: request.test()[0]

    def _wait(self, is_done: Callable[[], bool]) -> None:
        """Wait for `is_done`; raises AbandonedError after a signal, RankFailedError if another rank failed."""
        begin, pause = time.perf_counter(), FIRST_SLEEP
        while not self._is_stopped() and not is_done():
            if time.perf_counter() - begin < SPIN_SECONDS:
                continue
            if self.is_first and self._alarm.iprobe(self._mpi.ANY_SOURCE, TAG_FAILED):
                raise RankFailedError(*self._alarm.recv(source=self._mpi.ANY_SOURCE, tag=TAG_FAILED))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_SLEEP)

    def _is_stopped(self) -> bool:
        """Raises AbandonedError after a signal; MPI must not be called then, since it would abort."""
        if self.stopping():
            raise AbandonedError
        return False


_joined: list[Ranks] = []
_asked: dict[str, str] = {}


def ask(what: Mapping[str, str]) -> None:
    """Store the flags of this process, which `joined` compares with those of other ranks."""
    _asked.update(what)


def joined() -> Ranks:
    """The ranks of this process, joined at the first call.

    Raises UserError if mpi4py is missing or incompatible and, on all ranks, if their flags differ.
    """
    if not _joined:
        _joined.append(_join(places.here()))
        found = differences(_joined[0].everyone({MACHINE: platform.node(), **_asked}))
        if found:
            raise UserError(f"the ranks differ: {listed(found, 3)}; start all of them with the same flags")
    return _joined[0]


def is_joined() -> bool:
    """Whether `joined` was called."""
    return bool(_joined)


def _join(place: Place) -> Ranks:
    """The ranks according to the environment."""
    if place.size == 1:
        alone = Ranks()
        alone.place = place
        return alone
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except ImportError as error:
        if getattr(error, "name", "") == "mpi4py":
            raise UserError(MISSING.format(starter=place.starter, size=place.size)) from None
        raise UserError(f"mpi4py cannot load its MPI library ({error}): install openmpi or mpich") from None
    return MpiRanks(place, MPI)


def equal_share(entries: int, rank: int, size: int) -> slice | None:
    """The entries of one of `size` processes, equal to one entry; None if there are fewer entries than processes."""
    return slice(entries * rank // size, entries * (rank + 1) // size) if entries >= size else None


def differences(of_all: Sequence[dict[str, Any]]) -> list[str]:
    """The values on which ranks disagree: for each name the value of rank 0 and of the first rank that differs."""
    first, found = of_all[0], []
    for name in dict.fromkeys(name for one in of_all for name in one if name != MACHINE):
        for rank, other in enumerate(of_all):
            if other.get(name) != first.get(name):
                own, its = first.get(name), other.get(name)
                found.append(f"{name}: {own} on rank 0, {its} on rank {rank} ({other[MACHINE]})")
                break
    return found
