"""The rank of this process, from the environment variables of mpirun or srun; MPI is not imported."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from data.errors import UserError

# Variables for rank, number of ranks, local rank and number of local ranks, by starter.
OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
MPICH = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")
STARTERS = {"mpirun": OPEN_MPI, "mpiexec": MPICH, "srun": SLURM}


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
