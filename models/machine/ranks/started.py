"""Start and end of a process that may be a rank: participation, output, and the report of failures.

Most mistakes of the user, in the conf or the scene, occur on all ranks at the same time: rank 0 prints the error and
exits, and the launcher (mpirun) terminates the others. A rank that fails alone reports to rank 0, or prints the error
if rank 0 does not respond.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import time
from collections.abc import Mapping

from data.errors import UserError
from data.io.streams import complain, hush, last_complaint
from models.machine.ranks import cores, place
from models.machine.ranks.ranks import MISSING, ask, is_joined, joined

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


def takes_part(is_shared: bool, asked: Mapping[str, str]) -> bool:
    """Whether this process takes part; work that is not shared is done by rank 0 as a single process.

    asked: the flags that must agree on all ranks. Raises UserError if there are several ranks without mpi4py.
    """
    where = place.here()
    if not where.starter:
        return True
    if not is_shared:
        place.be_alone(os.environ)
        return where.rank == 0
    if where.size > 1 and importlib.util.find_spec(PACKAGE) is None:
        raise UserError(MISSING.format(starter=where.starter, size=where.size))
    ask(asked)
    count = cores.settle(where, _grandparent())
    os.environ.setdefault(THREADS_VARIABLE, str(count))
    return True


def ended(status: int) -> int:
    """The exit status of the process; a failure of a rank other than 0 is reported."""
    try:
        where = place.here()
    except UserError:
        return status
    if where.rank == 0 or status == 0 or status in BY_SIGNAL:
        return status
    sentence = last_complaint().removeprefix(CRASH_WORDS)
    if is_joined():
        joined().fail(sentence, status)
    else:
        time.sleep(GRACE_SECONDS)
    hush(False)
    complain(f"error: rank {where.rank} ({platform.node()}): {sentence}")
    return status


def _grandparent() -> int:
    """The process id of mpirun or its local daemon, the parent of the outer one of the two watchdog processes."""
    process = os.getpid()
    for _ in range(3):
        process = _parent(process)
    return process


def _parent(process: int) -> int:
    """The parent of a process; the process itself if that is unknown."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return process
