"""Which of how many processes this one is, as whatever started it says; nothing of MPI is imported for that."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from data.errors import UserError

# Rank, number of ranks, rank on this machine, ranks on this machine; by what sets them.
OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
MPICH = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")
STARTERS = {"mpirun": OPEN_MPI, "mpiexec": MPICH, "srun": SLURM}


@dataclass(frozen=True)
class Place:
    """One of `size` processes, the first of which is 0."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among those on this machine
    local_size: int = 1
    # Of STARTERS; "" for a process that was started by itself, as is one of a shell that srun has started.
    starter: str = ""


def place_of(environ: Mapping[str, str]) -> Place:
    """What the variables of Open MPI, MPICH (Intel MPI, MVAPICH) or Slurm say; raises UserError for what cannot be."""
    for starter, names in STARTERS.items():
        if starter == "srun" and "SLURM_STEP_ID" not in environ:
            continue  # the script of a job has the numbers of its first process, and is none
        if names[0] in environ and names[1] in environ:
            rank, size, local_rank, local_size = (_first_number(environ, name, names) for name in names)
            place = Place(rank, size, local_rank, local_size, starter)
            if not 0 <= place.rank < place.size or place.local_rank >= max(place.local_size, 1):
                raise UserError(f"{names[0]} = {rank} of {names[1]} = {size}: no such rank; start it with {starter}")
            return place if size > 1 or starter != "srun" else Place()
    return Place()


def _first_number(environ: Mapping[str, str], name: str, names: tuple[str, ...]) -> int:
    """The number at the beginning of a variable, as in `4(x2)`; of a machine's, where it is not set, those of all."""
    if name not in environ:
        return _first_number(environ, names[names.index(name) - 2], names)
    digits = environ[name].split("(")[0].split(",")[0]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 8):
        raise UserError(f"the environment variable {name} = {environ[name]!r}: must be a whole number; unset it")
    return int(digits)


def here() -> Place:
    """Of this process."""
    return place_of(os.environ)


def own_card(first: int, environ: Mapping[str, str]) -> int:
    """Which of the cards that this process may see is its own: one for each rank of a machine, from `first` on.

    Where whatever started the ranks offers a single one, as Slurm does that gives each its own, it is that.
    """
    has_single = "," not in environ.get("CUDA_VISIBLE_DEVICES", ",")
    return first if has_single else first + place_of(environ).local_rank


def be_alone(environ: MutableMapping[str, str]) -> None:
    """From now on this process is one by itself."""
    for names in STARTERS.values():
        for name in names:
            environ.pop(name, None)
