"""Each rank's share of the cores of its machine."""

from __future__ import annotations

import os

from models.machine.ranks.place import Place


def share(cores: list[int], place: Place) -> list[int]:
    """Of these cores those of one rank; where there are more ranks than cores, one that it has with others."""
    if place.local_size > len(cores):
        return [cores[place.local_rank % len(cores)]]
    start, stop = (len(cores) * rank // place.local_size for rank in (place.local_rank, place.local_rank + 1))
    return cores[start:stop]


def settle(place: Place, parent: int) -> int:
    """Keep this process to its share; returns the number of its cores.

    mpirun keeps each of two processes it starts to one core, however many there are: then the share is one of what
    `parent`, mpirun itself, may use. A share that is larger than that is what was asked for, and stays.
    """
    own = sorted(os.sched_getaffinity(0))
    try:
        every = sorted(os.sched_getaffinity(parent))
    except (ProcessLookupError, PermissionError):
        every = own
    wanted = share(every if len(every) >= len(own) else own, place)
    is_kept_apart = len(own) < len(every)  # by mpirun, or by Slurm
    if is_kept_apart and len(own) >= len(wanted):
        return len(own)
    try:
        os.sched_setaffinity(0, wanted)
    except OSError:
        return len(own)
    return len(wanted)
