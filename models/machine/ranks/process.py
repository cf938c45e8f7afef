"""A process that may be a rank: its place, its start and end, its output, its failures, and time to save.

The place is read from the environment variables of mpirun or srun; MPI is not imported.

Most mistakes of the user, in the conf or the scene, occur on all ranks at the same time: rank 0 prints the error and
exits, and the launcher (mpirun) terminates the others. A rank that fails alone prints the error itself.

When mpirun is stopped or a rank has died, it kills its children after 0.2 seconds, less than a training step. So the
rank runs in a grandchild, in its own session. Its parent, the keeper, forwards signals, waits for the rank, and kills
it after a timeout; the keeper's parent is the child of mpirun.

    mpirun -> outer (killed at will) -> keeper -> rank

If one of them is killed, the kernel signals the next one, so that no process is left behind.
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
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from data.errors import UserError
from data.io.streams import complain, hush, last_complaint

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


def be_alone(environ: MutableMapping[str, str]) -> None:
    """Remove the variables of mpirun and srun, so that this process counts as a single one."""
    for names in STARTERS.values():
        for name in names:
            environ.pop(name, None)


def share(cores: list[int], place: Place) -> list[int]:
    """The cores of one rank; if there are more ranks than cores, a core that it shares with others."""
    if place.local_size > len(cores):
        return [cores[place.local_rank % len(cores)]]
    start, stop = (len(cores) * rank // place.local_size for rank in (place.local_rank, place.local_rank + 1))
    return cores[start:stop]


def settle(place: Place, parent: int) -> int:
    """Bind this process to its share of the cores; returns their number.

    mpirun binds each of two processes to a single core by default. Then the share is computed from the cores of
    `parent`, mpirun itself. A larger binding was requested by the user and is kept.
    """
    own = sorted(os.sched_getaffinity(0))
    try:
        every = sorted(os.sched_getaffinity(parent))
    except (ProcessLookupError, PermissionError):
        every = own
    wanted = share(every if len(every) >= len(own) else own, place)
    is_bound = len(own) < len(every)  # by mpirun, or by Slurm
    if is_bound and len(own) >= len(wanted):
        return len(own)
    try:
        os.sched_setaffinity(0, wanted)
    except OSError:
        return len(own)
    return len(wanted)


MISSING = (
    "{starter} started {size} processes, and the Python package mpi4py is missing: "
    "run `pip install -r requirements-mpi.txt`, or start one process"
)
PACKAGE = "mpi4py"
THREADS_VARIABLE = "OMP_NUM_THREADS"
GRACE_SECONDS = 3.0  # in which rank 0 detects the same mistake and ends all ranks
BY_SIGNAL = (129, 130, 143)  # exit statuses after SIGHUP, SIGINT, SIGTERM, which all ranks receive
CRASH_WORDS = "error: "


def quietly() -> None:
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
        be_alone(os.environ)
        return where.rank == 0
    if where.size > 1 and importlib.util.find_spec(PACKAGE) is None:
        raise UserError(MISSING.format(starter=where.starter, size=where.size))
    count = settle(where, int(os.environ.get(STARTER_VARIABLE, os.getppid())))
    os.environ.setdefault(THREADS_VARIABLE, str(count))
    return True


def ended(status: int) -> int:
    """The exit status of the process; a failure of a rank other than 0 is printed."""
    try:
        where = here()
    except UserError:
        return status
    if where.rank == 0 or status == 0 or status in BY_SIGNAL:
        return status
    time.sleep(GRACE_SECONDS)
    hush(False)
    complain(f"error: rank {where.rank} ({platform.node()}): {last_complaint().removeprefix(CRASH_WORDS)}")
    return status


DONE_VARIABLE = "NEUS_RANK_OF"  # set in the rank itself, which may restart itself
STARTER_VARIABLE = "NEUS_STARTER"  # the process id of mpirun or its local daemon
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
PATIENCE = 12  # seconds that a rank has for saving
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FORWARDED = (*STOPPING, signal.SIGUSR1, signal.SIGUSR2)
EXIT_BASE = 128


def enter_where_ranks() -> None:
    """`enter` if mpirun started this process; an invalid environment is reported later."""
    with contextlib.suppress(UserError):
        if sys.platform == "linux" and here().starter:
            enter()


def enter() -> None:
    """Fork twice and return only in the grandchild, the rank; must be called before anything else."""
    if os.environ.get(DONE_VARIABLE) == str(os.getpid()):
        return
    os.environ[STARTER_VARIABLE] = str(os.getppid())
    _become_child_of_a_watcher(signal.SIGTERM, ends_late=False)
    os.setsid()
    _become_child_of_a_watcher(signal.SIGKILL, ends_late=True)
    os.environ[DONE_VARIABLE] = str(os.getpid())


def _become_child_of_a_watcher(at_death: signal.Signals, ends_late: bool) -> None:
    """Fork; the parent watches the child and never returns. `at_death`: the child's signal when the parent dies."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # so that no signal is lost
    parent = os.getpid()
    child = os.fork()
    if child:
        _watch(child, ends_late)
    end_with_parent(at_death)
    if os.getppid() != parent:
        os.kill(os.getpid(), at_death)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)


def _watch(child: int, ends_late: bool) -> NoReturn:
    """Forward signals to the child and exit with its status; with `ends_late` it is killed after PATIENCE.

    Only the first stop signal is forwarded: the death of the parent sends another one, and a second stop signal would
    end the rank immediately.
    """
    end_with_parent(signal.SIGTERM)

    is_stopping = False

    def hand_on(signum: int, frame: object) -> None:
        nonlocal is_stopping
        del frame
        if signum not in STOPPING:
            _send(child, signum)
        elif not is_stopping:
            is_stopping = True
            _send(child, signum)
            signal.alarm(PATIENCE if ends_late else 0)

    def end(signum: int, frame: object) -> None:
        del signum, frame
        _send(child, signal.SIGKILL)

    for signum in FORWARDED:
        signal.signal(signum, hand_on)
    signal.signal(signal.SIGALRM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(status if status >= 0 else EXIT_BASE - status)


def _send(process: int, signum: int) -> None:
    """Send a signal to a process, if it still exists."""
    try:
        os.kill(process, signum)
    except ProcessLookupError:
        return


def end_with_parent(signum: signal.Signals) -> None:
    """Set the signal that the kernel sends this process when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signum), 0, 0, 0)


def of_this_job(names: Sequence[str], environ: Mapping[str, str]) -> list[str]:
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
