"""Ranks: processes that share a training, started by mpirun or srun. A single process does not import MPI.

The place of a process is read from the environment variables of its starter. Rank 0 leads: it alone decides, writes and
prints. The others hold the same model and take every step with it: each rank differentiates a part of the batch, and
all get the sum. Waiting polls with short sleeps, so that signals are noticed, and ranks that share a core do not block
each other.

Most mistakes of the user, in the conf or the scene, occur on all ranks at the same time: rank 0 prints the error and
exits, and the launcher terminates the others. A rank that fails alone prints the error itself. At SIGTERM a training
saves its state, for which the launcher must leave it time (docs/cluster.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import platform
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import UserError
from data.io.streams import complain, hush, last_complaint

if TYPE_CHECKING:  # NumPy reads environment variables that are set before it is imported
    import numpy as np

# Variables for rank, number of ranks, local rank and number of local ranks, by starter.
OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
MPICH = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")
STARTERS = {"mpirun": OPEN_MPI, "mpiexec": MPICH, "srun": SLURM}
ARRAY = tuple(f"SLURM_ARRAY_TASK_{word}" for word in ("ID", "MIN", "MAX", "COUNT", "STEP"))


@dataclass(frozen=True)
class Place:
    """Rank and size."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among the ranks on this machine
    local_size: int = 1
    starter: str = ""  # of STARTERS; "" for a single process, also in a shell started by srun


def place_of(environ: Mapping[str, str]) -> Place:
    """The place from variables of Open MPI, MPICH (Intel MPI, MVAPICH) or Slurm; raises UserError if invalid."""
    for starter, names in STARTERS.items():
        if starter == "srun" and "SLURM_STEP_ID" not in environ:
            continue  # a job's script has the variables of its first process but is not a rank
        if names[0] in environ and names[1] in environ:
            rank, size, local_rank, local_size = (_first_number(environ, name, names) for name in names)
            place = Place(rank, size, local_rank, local_size, starter)
            if not 0 <= place.rank < place.size or place.local_rank >= max(place.local_size, 1):
                raise UserError(f"{names[0]} = {rank} of {names[1]} = {size}: no such rank; start it with {starter}")
            return place if size > 1 or starter != "srun" else Place()
    return Place()


def _first_number(environ: Mapping[str, str], name: str, names: tuple[str, ...]) -> int:
    """The number at the start of a variable such as `4(x2)`; an unset local one defaults to the global one."""
    if name not in environ:
        return _first_number(environ, names[names.index(name) - 2], names)
    digits = environ[name].split("(")[0].split(",")[0]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 8):
        raise UserError(f"the environment variable {name} = {environ[name]!r}: must be a whole number; unset it")
    return int(digits)


def here() -> Place:
    """The place of this process."""
    return place_of(os.environ)


def is_writer() -> bool:
    """Whether this process writes files: rank 0, or a single process."""
    return here().rank == 0


def own_gpu(first: int, environ: Mapping[str, str]) -> int:
    """The index of this rank's GPU: one for each local rank, starting at `first`.

    If only one GPU is visible, as with Slurm's GPU binding, it is `first` itself.
    """
    has_single = "," not in environ.get("CUDA_VISIBLE_DEVICES", ",")
    return first if has_single else first + place_of(environ).local_rank


def forget_ranks(environ: MutableMapping[str, str]) -> None:
    """Remove the variables of mpirun and srun, so that this process counts as a single one."""
    for names in STARTERS.values():
        for name in names:
            environ.pop(name, None)


def cores_of_rank(cores: list[int], place: Place) -> list[int]:
    """The cores of one rank; if there are more ranks than cores, a core that it shares with others."""
    if place.local_size > len(cores):
        return [cores[place.local_rank % len(cores)]]
    start, stop = (len(cores) * rank // place.local_size for rank in (place.local_rank, place.local_rank + 1))
    return cores[start:stop]


def bind_to_cores(place: Place, parent: int) -> int:
    """Bind this process to its share of the cores; returns their number.

    mpirun binds each of two processes to a single core by default. Then the share is computed from the cores of
    `parent`, mpirun itself. A larger binding was requested by the user and is kept.
    """
    own = sorted(os.sched_getaffinity(0))
    try:
        every = sorted(os.sched_getaffinity(parent))
    except (ProcessLookupError, PermissionError):
        every = own
    wanted = cores_of_rank(every if len(every) >= len(own) else own, place)
    is_bound = len(own) < len(every)  # by mpirun, or by Slurm
    if is_bound and len(own) >= len(wanted):
        return len(own)
    try:
        os.sched_setaffinity(0, wanted)
    except OSError:
        return len(own)
    return len(wanted)


MISSING_MPI4PY = (
    "{starter} started {size} processes, and the Python package mpi4py is missing: "
    "run `pip install -r requirements-mpi.txt`, or start one process"
)
THREADS_VARIABLE = "OMP_NUM_THREADS"
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
GRACE_SECONDS = 3.0  # in which rank 0 detects the same mistake and ends all ranks
BY_SIGNAL = (129, 130, 143)  # exit statuses after SIGHUP, SIGINT, SIGTERM, which all ranks receive


def silence_other_ranks() -> None:
    """Switch off output on ranks other than 0."""
    try:
        hush(here().rank > 0)
    except UserError:
        hush(False)  # the rank is unknown, so all print


def takes_part(is_shared: bool) -> bool:
    """Whether this process takes part; work that is not shared is done by rank 0 as a single process.

    Raises UserError if there are several ranks without mpi4py.
    """
    where = here()
    if not where.starter:
        return True
    if not is_shared:
        forget_ranks(os.environ)
        return where.rank == 0
    if where.size > 1 and importlib.util.find_spec("mpi4py") is None:
        raise UserError(MISSING_MPI4PY.format(starter=where.starter, size=where.size))
    count = bind_to_cores(where, os.getppid())
    os.environ.setdefault(THREADS_VARIABLE, str(count))
    return True


def exit_status_of_rank(status: int) -> int:
    """The exit status of the process; a failure of a rank other than 0 is printed."""
    try:
        where = here()
    except UserError:
        return status
    if where.rank == 0 or status == 0 or status in BY_SIGNAL:
        return status
    time.sleep(GRACE_SECONDS)
    hush(False)
    complain(f"error: rank {where.rank} ({platform.node()}): {last_complaint().removeprefix('error: ')}")
    return status


def end_with_parent(signum: signal.Signals, parent: int) -> None:
    """Let the kernel send this process a signal when its parent ends; called in a child of the process `parent`."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signum))
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def scenes_of_job(names: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The scenes of this job of a Slurm array; all scenes outside of an array.

    Raises UserError if the job indices are not those of a complete array, from which the job's part is computed.
    """
    if ARRAY[0] not in environ:
        return list(names)
    numbers = [environ.get(name, "1" if name == ARRAY[-1] else "") for name in ARRAY]
    task, first, last, count, step = (int(number) if number.isdigit() else -1 for number in numbers)
    is_even = step > 0 and (last - first) // step + 1 == count and (task - first) % step == 0
    if not is_even or not 0 <= first <= min(task, 1) or task > last:
        raise UserError(
            f"--cases: the {count} jobs of this array are numbered {first} to {last}, which is not a complete array: "
            "scenes would be left out or trained twice; start all with sbatch --array=0-N, or repeat some with "
            "JOBS=<number of all jobs> sbatch --array=... docs/slurm/cases.sbatch"
        )
    return list(names[(task - first) // step :: count])


Sum = Callable[["np.ndarray"], None]  # replaces an array by its sum over all ranks

TAG_GATHERED, TAG_TOLD = 1, 2
SPIN_SECONDS = 2e-4  # of polling without sleep: most messages within a machine arrive in this time
FIRST_SLEEP, LONGEST_SLEEP = 2e-5, 1e-3
CHECKED = 1_000_000  # numbers in the sum of `check`
MODELS_FOLDER = Path(__file__).resolve().parents[1]


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
        operations: list[Any] = []

        def is_done() -> bool:
            if not operations:
                operations.append(start())
            return operations[0].test()[0]

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
            raise UserError(MISSING_MPI4PY.format(starter=place.starter, size=place.size)) from None
        raise UserError(f"mpi4py cannot load its MPI library ({error}): install openmpi or mpich") from None
    ranks = MpiRanks(place, MPI)
    files = sorted(file for file in MODELS_FOLDER.rglob("*") if file.suffix in (".py", ".h"))
    program = zlib.crc32(b"".join(file.read_bytes() for file in files))
    ranks.agree(program=f"{program:08x}", command_line=" ".join(sys.argv[1:]))
    return ranks
