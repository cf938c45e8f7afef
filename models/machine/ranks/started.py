"""The start and the end of a process that may be one of several: who takes part, who speaks, how a failure is told.

All ranks meet most mistakes of a user, in the conf or the scene, at the same time: rank 0 tells them and ends, and what
started the ranks ends the others. What another rank alone meets it tells rank 0, or tells itself where that is not to
be had.
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
GRACE_SECONDS = 3.0  # in which rank 0 meets the same mistake and ends everything
BY_SIGNAL = (129, 130, 143)  # exit statuses after SIGHUP, SIGINT, SIGTERM: all ranks get those
CRASH_WORDS = "error: "


def quietly() -> None:
    """A process that is not the first of several prints nothing."""
    try:
        hush(place.here().rank > 0)
    except UserError:
        hush(False)  # told by all: nobody knows who is first


def takes_part(is_shared: bool, asked: Mapping[str, str]) -> bool:
    """Whether this process has to work; work that is not shared the first of several does as if it were alone.

    `asked`: by flag, what all have to be asked alike. Raises UserError where there are several and nothing that they
    could talk by.
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
    """The exit status of a process whose work has ended so; where it failed and is not the first, that is told."""
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
    """mpirun, or what it is on this machine: beyond the two processes of the shield."""
    process = os.getpid()
    for _ in range(3):
        process = _parent(process)
    return process


def _parent(process: int) -> int:
    """The parent of a process; itself where that cannot be told."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return process
