"""Assigns each rank its share of the machine's cores."""

from __future__ import annotations

import os

from models.machine.ranks.place import Place


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
