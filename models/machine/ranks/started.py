"""Start and end of a process that may be a rank: participation, output, and the report of failures.

Most mistakes of the user, in the conf or the scene, occur on all ranks at the same time: rank 0 prints the error and
exits, and the launcher (mpirun) terminates the others. A rank that fails alone prints the error itself.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import time

from data.errors import UserError
from data.io.streams import complain, hush, last_complaint
from models.machine.ranks import place
from models.machine.ranks.ranks import MISSING
from models.machine.ranks.shield import STARTER_VARIABLE

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
