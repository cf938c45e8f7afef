"""What processes that share a piece of work say to each other. One process by itself is all of its ranks.

Messages go by MPI (mpi4py), none of which is imported for a single process. Waiting is done by asking, with short
sleeps between: so a signal is heard, another rank's failure too, and where there are more ranks than cores the others
get on.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from data.errors import UserError, is_allocation_failure, listed
from models.machine.ranks import place as places
from models.machine.ranks.place import Place

if TYPE_CHECKING:  # it reads the environment, which is put in order before
    import numpy as np

Result = TypeVar("Result")

TAG_RESULT, TAG_TOLD, TAG_FAILED = 1, 2, 3
SPIN_SECONDS = 2e-4  # of asking without sleep: messages within a machine are there by then
FIRST_SLEEP, LONGEST_SLEEP = 2e-5, 1e-3
FAREWELL_SECONDS = 8.0  # that a rank which failed gives rank 0 to save and to end everything
# Numbers that ranks of one machine add at a time: they stay in the cache, and MPI holds as many of another rank beside
# them. Between machines each message costs time.
SUM_BLOCK = 1 << 17
MACHINE = "machine"  # in what ranks compare: which one each is on
MISSING = (
    "{starter} started {size} processes, and the Python package mpi4py is missing: "
    "run `pip install -r requirements-mpi.txt`, or start one process"
)


class AbandonedError(Exception):
    """A signal came while ranks waited for each other; nothing of what they were about has taken place."""


class RankFailedError(UserError):
    """Another rank cannot go on, in its own words."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Ranks:
    """The processes as one of them sees them. This class is that of a single one, for which all is done by itself."""

    place = Place()

    @property
    def rank(self) -> int:
        """Which one this is."""
        return self.place.rank

    @property
    def size(self) -> int:
        """How many there are."""
        return self.place.size

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes."""
        return self.place.rank == 0

    def add(self, values: np.ndarray) -> None:
        """Replace float32 or float64 values by their sums over all ranks, which are the same everywhere bit for bit."""

    def gather(self, value: Any) -> list[Any] | None:
        """Everyone's value in the order of the ranks, for rank 0; None for the others."""
        return [value]

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value."""
        return value

    def everyone(self, value: Any) -> list[Any]:
        """Everyone's value, for all."""
        return self.broadcast(self.gather(value))

    def everyones(self, work: Callable[[], Result]) -> list[Result]:
        """What everyone's work gives, for all; where it fails for one, it fails for all, with MemoryError."""
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
        """Go on when all are here."""

    def part(self, count: int) -> slice:
        """Of `count` things in a row, those of this rank."""
        start, stop = (count * rank // self.size for rank in (self.rank, self.rank + 1))
        return slice(start, stop)

    def fail(self, sentence: str, status: int) -> None:
        """Tell rank 0 that this rank cannot go on, and give it the time to end all."""

    def close(self) -> None:
        """All work is done."""

    # Whether a signal has come, which ends all waiting; who takes signals says so here.
    stopping: Callable[[], bool] = staticmethod(lambda: False)


ALONE = Ranks()


class MpiRanks(Ranks):
    """Several processes."""

    def __init__(self, place: Place, mpi: Any) -> None:
        """`mpi`: the module mpi4py.MPI. Raises UserError where it sees other processes than the environment says."""
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
            raise ValueError("only what lies in one piece can be added in its place")
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
        """Something to one rank."""
        self._wait(self._done(self._world.isend(value, rank, TAG_TOLD)))

    def has_sent(self, rank: int) -> bool:
        """Whether `receive` would not wait for a rank."""
        return self._world.iprobe(rank, TAG_TOLD)

    def receive(self, rank: int) -> Any:
        """What a rank has sent."""
        return self._receive(rank, TAG_TOLD)

    def fail(self, sentence: str, status: int) -> None:
        """See `Ranks`. Rank 0 itself tells nobody: what started it ends the others as it leaves."""
        if self.is_first or self._mpi.Is_finalized():
            return
        where = f"rank {self.rank} ({platform.node()}): {sentence}"
        request = self._alarm.isend((where, status), 0, TAG_FAILED)
        until = time.monotonic() + FAREWELL_SECONDS
        while time.monotonic() < until:
            request.test()
            time.sleep(LONGEST_SLEEP)

    def close(self) -> None:
        """See `Ranks`; raises AbandonedError or RankFailedError where some are not done."""
        self.barrier()
        self._mpi.Finalize()

    def _receive(self, rank: int, tag: int) -> Any:
        """What a rank sends."""
        self._wait(lambda: self._world.iprobe(rank, tag))
        return self._world.recv(source=rank, tag=tag)

    def _done(self, request: Any) -> Callable[[], bool]:
        """Whether what was sent is on its way."""
        return lambda: request.test()[0]

    def _wait(self, is_done: Callable[[], bool]) -> None:
        """Until it is; raises AbandonedError after a signal, RankFailedError where another rank has failed."""
        begin, pause = time.perf_counter(), FIRST_SLEEP
        while not self._is_stopped() and not is_done():
            if time.perf_counter() - begin < SPIN_SECONDS:
                continue
            if self.is_first and self._alarm.iprobe(self._mpi.ANY_SOURCE, TAG_FAILED):
                raise RankFailedError(*self._alarm.recv(source=self._mpi.ANY_SOURCE, tag=TAG_FAILED))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_SLEEP)

    def _is_stopped(self) -> bool:
        """Raises AbandonedError where a signal has come: from then on MPI is not asked again, which would end us."""
        if self.stopping():
            raise AbandonedError
        return False


_joined: list[Ranks] = []
_asked: dict[str, str] = {}


def ask(what: Mapping[str, str]) -> None:
    """What this process was asked to do, by flag: `joined` compares it with what the others were asked."""
    _asked.update(what)


def joined() -> Ranks:
    """The ranks of this process, joined at the first call.

    Raises UserError where mpi4py is missing or unfit and, on all ranks, where they were not asked the same.
    """
    if not _joined:
        _joined.append(_join(places.here()))
        found = differences(_joined[0].everyone({MACHINE: platform.node(), **_asked}))
        if found:
            raise UserError(f"the ranks disagree: {listed(found, 3)}; start all of them with the same flags")
    return _joined[0]


def is_joined() -> bool:
    """Whether MPI has been asked for."""
    return bool(_joined)


def _join(place: Place) -> Ranks:
    """Those that the environment says there are."""
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
        raise UserError(f"mpi4py does not find the MPI it was built for ({error}): install openmpi or mpich") from None
    return MpiRanks(place, MPI)


def differences(of_all: Sequence[dict[str, Any]]) -> list[str]:
    """Where ranks disagree, each by name: what the first one has, and what the first that differs has."""
    first, found = of_all[0], []
    for name in dict.fromkeys(name for one in of_all for name in one if name != MACHINE):
        for rank, other in enumerate(of_all):
            if other.get(name) != first.get(name):
                own, its = first.get(name), other.get(name)
                found.append(f"{name}: {own} on rank 0, {its} on rank {rank} ({other[MACHINE]})")
                break
    return found
