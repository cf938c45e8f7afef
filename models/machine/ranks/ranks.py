"""Communication between ranks by MPI; a single process is rank 0 of one and does not import MPI.

Rank 0 leads: it alone decides, writes and prints. The others hold the same model and take every step with it: each
rank differentiates a part of the batch, and all get the sum. Waiting polls with short sleeps, so that signals are
noticed, and ranks that share a core do not block each other.
"""

from __future__ import annotations

import contextlib
import platform
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import UserError
from models.machine.ranks.process import MISSING, Place, here

if TYPE_CHECKING:  # NumPy reads environment variables that are set before it is imported
    import numpy as np

Sum = Callable[["np.ndarray"], None]  # replaces an array by its sum over all ranks

TAG_GATHERED, TAG_TOLD = 1, 2
SPIN_SECONDS = 2e-4  # of polling without sleep: most messages within a machine arrive in this time
FIRST_SLEEP, LONGEST_SLEEP = 2e-5, 1e-3
CHECKED = 1_000_000  # numbers in the sum of `check`
MODELS = Path(__file__).resolve().parents[2]


class AbandonedError(Exception):
    """A signal arrived while ranks waited for each other; MPI must not be called after it, since it would abort."""


class Ranks:
    """The ranks of a run. This base class is a single process, for which collective operations are trivial."""

    place = Place()
    _is_stopped: Callable[[], bool] = staticmethod(lambda: False)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.place.size

    @property
    def is_writer(self) -> bool:
        """Whether this is rank 0."""
        return self.place.rank == 0

    def sum(self, values: np.ndarray) -> None:
        """Replace a contiguous array by its sum over all ranks, bitwise equal on all of them."""

    def gather(self, value: Any) -> list[Any] | None:
        """The values of all ranks, in rank order, on rank 0; None on the others."""
        return [value]

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value."""
        return value

    def close(self) -> None:
        """Finish the communication, when all ranks have called this."""

    def share(self, batch: Any, noise: Mapping[str, np.ndarray] | None) -> tuple[Any, Any, Sum | None]:
        """The part of a batch and its jitter, and `sum` if there are other ranks; raises UserError if it is empty."""
        if self.size == 1:
            return batch, noise, None
        start, stop = (len(batch) * rank // self.size for rank in (self.place.rank, self.place.rank + 1))
        if len(batch) < self.size:
            raise UserError(f"{self.size} ranks cannot share a batch of {len(batch)}: increase train.batch_size")
        jitter = None if noise is None else {name: array[start:stop] for name, array in noise.items()}
        return batch.part(start, stop), jitter, self.sum

    def mine(self, items: Sequence[Any]) -> Sequence[Any]:
        """The items that this rank works on."""
        return items[self.place.rank :: self.size]

    def agree(self, **what: str) -> None:
        """Raises UserError on all ranks, naming the first difference, if they have different values."""
        of_all = self.broadcast(self.gather(what))
        for rank, other in enumerate(of_all):
            for name, first in of_all[0].items():
                if other[name] != first:
                    raise UserError(
                        f"the ranks differ: {name.replace('_', ' ')}: {first} on rank 0, {other[name]} on rank {rank}; "
                        "start all of them with the same program, command line and scene"
                    )

    def lead(self, news: Callable[[], Any]) -> None:
        """Called before a step: rank 0 tells the others to take it, and `news`."""
        if self.size > 1 and self.is_writer:
            self.broadcast((news(),))

    def dismiss(self) -> None:
        """End `orders` of the others."""
        self.broadcast(None)

    def orders(self) -> Iterator[Any]:
        """The news before each step that rank 0 takes."""
        while (order := self.broadcast(None)) is not None:
            yield order[0]

    @contextlib.contextmanager
    def until(self, is_stopped: Callable[[], bool]) -> Iterator[None]:
        """Context manager: its body ends when ranks wait for each other and a signal has arrived."""
        self._is_stopped = is_stopped
        try:
            with contextlib.suppress(AbandonedError):
                yield
        finally:
            del self._is_stopped

    @contextlib.contextmanager
    def undoing(self, snapshot: Callable[[], Callable[[], None]]) -> Iterator[None]:
        """Context manager: if its body is ended by a signal, call what `snapshot` returned before it."""
        undo = snapshot() if self.size > 1 else lambda: None
        try:
            yield
        except AbandonedError:
            undo()
            raise

    def check(self) -> str:
        """A line about the ranks, "" for a single one; raises UserError if their sums are wrong."""
        if self.size == 1:
            return ""
        import numpy as np

        values, expected = np.full(CHECKED, self.place.rank + 1, np.float32), self.size * (self.size + 1) / 2
        begin = time.perf_counter()
        self.sum(values)
        seconds, machines = time.perf_counter() - begin, self.gather(platform.node())
        if (values != expected).any():
            raise UserError("MPI computes wrong sums: start one process")
        where = ", ".join(sorted(set(machines or ())))
        return f"{self.size} ranks on {where}: a sum of 4 MB takes {1e3 * seconds:.1f} ms"


ALONE = Ranks()


class MpiRanks(Ranks):
    """Several ranks, connected by MPI."""

    def __init__(self, place: Place, mpi: Any) -> None:
        """`mpi`: the module mpi4py.MPI. Raises UserError if MPI and the environment disagree on the ranks."""
        self.place = place
        self._mpi, self._world = mpi, mpi.COMM_WORLD
        if not mpi.Is_initialized():
            mpi.Init_thread(mpi.THREAD_SINGLE)
        if (self._world.rank, self._world.size) != (place.rank, place.size):
            raise UserError(
                f"{place.starter} started {place.size} processes and MPI sees {self._world.size}: start them with the "
                "mpirun that mpi4py was built for, or with srun --mpi=pmix"
            )

    def sum(self, values: np.ndarray) -> None:
        """See `Ranks`."""
        self._finish(lambda: self._world.Iallreduce(self._mpi.IN_PLACE, values))

    def gather(self, value: Any) -> list[Any] | None:
        """See `Ranks`."""
        if not self.is_writer:
            self._send(value, 0, TAG_GATHERED)
            return None
        return [value, *(self._receive(rank, TAG_GATHERED) for rank in range(1, self.size))]

    def broadcast(self, value: Any) -> Any:
        """See `Ranks`."""
        if not self.is_writer:
            return self._receive(0, TAG_TOLD)
        for rank in range(1, self.size):
            self._send(value, rank, TAG_TOLD)
        return value

    def close(self) -> None:
        """See `Ranks`."""
        self._finish(self._world.Ibarrier)
        self._mpi.Finalize()

    def _send(self, value: Any, rank: int, tag: int) -> None:
        self._finish(lambda: self._world.isend(value, rank, tag))

    def _receive(self, rank: int, tag: int) -> Any:
        self._wait(lambda: self._world.iprobe(rank, tag))
        return self._world.recv(source=rank, tag=tag)

    def _finish(self, start: Callable[[], Any]) -> None:
        """Start an operation and wait for its end."""
        found: list[Any] = []

        def is_done() -> bool:
            if not found:
                found.append(start())
            return found[0].test()[0]

        self._wait(is_done)

    def _wait(self, is_done: Callable[[], bool]) -> None:
        """Wait for `is_done`; raises AbandonedError after a signal."""
        begin, pause = time.perf_counter(), FIRST_SLEEP
        while True:
            if self._is_stopped():
                raise AbandonedError
            if is_done():
                return
            if time.perf_counter() - begin >= SPIN_SECONDS:
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_SLEEP)


@cache
def joined() -> Ranks:
    """The ranks of this process, joined at the first call.

    Raises UserError if mpi4py is missing or incompatible and, on all ranks, if program or command line differ.
    """
    place = here()
    if place.size == 1:
        return ALONE
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except ImportError as error:
        if getattr(error, "name", "") == "mpi4py":
            raise UserError(MISSING.format(starter=place.starter, size=place.size)) from None
        raise UserError(f"mpi4py cannot load its MPI library ({error}): install openmpi or mpich") from None
    ranks = MpiRanks(place, MPI)
    files = sorted(file for file in MODELS.rglob("*") if file.suffix in (".py", ".h"))
    program = zlib.crc32(b"".join(file.read_bytes() for file in files))
    ranks.agree(program=f"{program:08x}", command_line=" ".join(sys.argv[1:]))
    return ranks
