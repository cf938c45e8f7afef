"""Start and end of a process that may be a rank: participation, output, the report of failures, and time to save.

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
from typing import NoReturn

from data.errors import UserError
from data.io.streams import complain, hush, last_complaint
from models.machine.ranks import place
from models.machine.ranks.place import here
from models.machine.ranks.ranks import MISSING

PACKAGE = "mpi4py"
THREADS_VARIABLE = "OMP_NUM_THREADS"
GRACE_SECONDS = 3.0  # in which rank 0 detects the same mistake and ends all ranks
BY_SIGNAL = (129, 130, 143)  # exit statuses after SIGHUP, SIGINT, SIGTERM, which all ranks receive
CRASH_WORDS = "error: "


def quietly() -> None:
    """Switch off output on ranks other than 0."""
    try:
        hush(place.here().rank > 0)
    except UserError:
        hush(False)  # the rank is unknown, so all print


def takes_part(is_shared: bool) -> bool:
    """Whether this process takes part; work that is not shared is done by rank 0 as a single process.

    Raises UserError if there are several ranks without mpi4py.
    """
    where = place.here()
    if not where.starter:
        return True
    if not is_shared:
        place.be_alone(os.environ)
        return where.rank == 0
    if where.size > 1 and importlib.util.find_spec(PACKAGE) is None:
        raise UserError(MISSING.format(starter=where.starter, size=where.size))
    count = place.settle(where, int(os.environ.get(STARTER_VARIABLE, os.getppid())))
    os.environ.setdefault(THREADS_VARIABLE, str(count))
    return True


def ended(status: int) -> int:
    """The exit status of the process; a failure of a rank other than 0 is printed."""
    try:
        where = place.here()
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
    _at_death_of_parent(at_death)
    if os.getppid() != parent:
        os.kill(os.getpid(), at_death)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)


def _watch(child: int, ends_late: bool) -> NoReturn:
    """Forward signals to the child and exit with its status; with `ends_late` it is killed after PATIENCE.

    Only the first stop signal is forwarded: the death of the parent sends another one, and a second stop signal would
    end the rank immediately.
    """
    _at_death_of_parent(signal.SIGTERM)

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


def _at_death_of_parent(signum: signal.Signals) -> None:
    """Set the signal that the kernel sends this process when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
