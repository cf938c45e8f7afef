"""Who is told first when ranks are stopped: two small processes between the starter and a rank.

mpirun, once it is told to stop or a rank has died, gives each process it started 0.2 seconds and then kills it: less
than a step takes. So the rank works in a grandchild, in a session of its own. Its parent, the keeper, hands on
signals, waits for it, and ends it where it takes longer than it may; the keeper's parent is what mpirun knows.

    mpirun -> outer (killed at will) -> keeper -> rank

Where any of them is killed the next one hears of it from the kernel: no process is left behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from typing import NoReturn

from data.errors import UserError
from models.machine.ranks.place import here

DONE_VARIABLE = "NEUS_RANK_OF"  # set in the rank itself, which may start itself anew
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
PATIENCE = 12  # seconds that a rank has to save and to end
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FORWARDED = (*STOPPING, signal.SIGUSR1, signal.SIGUSR2)
EXIT_BASE = 128


def enter_where_ranks() -> None:
    """`enter` where mpirun started this process; a wrong environment is told later, where sentences are."""
    with contextlib.suppress(UserError):
        if sys.platform == "linux" and here().starter:
            enter()


def enter() -> None:
    """Return in the rank alone, which is a grandchild of the process that called; to be called before all else."""
    if os.environ.get(DONE_VARIABLE) == str(os.getpid()):
        return
    _become_child_of_a_watcher(signal.SIGTERM, ends_late=False)
    os.setsid()
    _become_child_of_a_watcher(signal.SIGKILL, ends_late=True)
    os.environ[DONE_VARIABLE] = str(os.getpid())


def _become_child_of_a_watcher(at_death: signal.Signals, ends_late: bool) -> None:
    """Fork; the parent watches and never returns. `at_death`: what the child gets where the parent dies."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # none is lost on the way
    parent = os.getpid()
    child = os.fork()
    if child:
        _watch(child, ends_late)
    _at_death_of_parent(at_death)
    if os.getppid() != parent:
        os.kill(os.getpid(), at_death)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)


def _watch(child: int, ends_late: bool) -> NoReturn:
    """Hand on signals to the child, and leave with its status; where it `ends_late` it is killed.

    It is told to stop once: the death of the one before says so again, and a second time would mean at once.
    """
    _at_death_of_parent(signal.SIGTERM)
    is_told = False

    def hand_on(signum: int, frame: object) -> None:
        nonlocal is_told
        del frame
        if signum not in STOPPING:
            _send(child, signum)
        elif not is_told:
            is_told = True
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
    """A signal to a process, if it is still there."""
    try:
        os.kill(process, signum)
    except ProcessLookupError:
        return


def _at_death_of_parent(signum: signal.Signals) -> None:
    """What the kernel sends this process when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
