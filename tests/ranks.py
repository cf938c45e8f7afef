"""Several processes under mpirun, as tests start them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

BESIDE = Path(sys.executable).with_name("mpirun")
MPIRUN = str(BESIDE) if BESIDE.is_file() else shutil.which("mpirun")
SECONDS = 120
# In a container one is root, and has fewer cores than ranks.
CONTAINER = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMP_NUM_THREADS": "1",
}


def missing() -> str:
    """Why no ranks can be started here; "" where they can."""
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        return "mpi4py is not installed (pip install -r requirements-mpi.txt)"
    return "" if MPIRUN else "there is no mpirun (pip install -r requirements-mpi.txt)"


needs_mpi = pytest.mark.skipif(bool(missing()), reason=missing() or "there is MPI")


def started(*programs: Sequence[str], ranks: int = 2) -> subprocess.Popen[str]:
    """`mpirun -n RANKS` of a command line, or of several with one rank each."""
    counts = [ranks] if len(programs) == 1 else [1] * len(programs)
    parts = [["-n", str(count), *program] for count, program in zip(counts, programs, strict=True)]
    line = [word for part in parts for word in (":", *part)][1:]
    environment = os.environ | CONTAINER
    return subprocess.Popen([MPIRUN, *line], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def sentences(err: str) -> list[str]:
    """The lines of the program on stderr, without mpirun's own message, which follows between rules."""
    return [line for line in err.partition("\n-----")[0].splitlines() if line.startswith("error:")]


def processes(word: str) -> dict[int, int]:
    """Process -> parent, of all Python processes in whose command line the word stands."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if "python" in line[0] and "exp_runner.py" in " ".join(line[:3]) and any(word in part for part in line):
            found[int(folder.name)] = parent
    return found


def workers(word: str) -> list[int]:
    """Of these the ranks themselves: grandchildren of what mpirun has started."""
    every = processes(word)
    outer = sorted(process for process, parent in every.items() if parent not in every)
    keepers = [process for one in outer for process, parent in every.items() if parent == one]
    return [process for one in keepers for process, parent in every.items() if parent == one]


def wait_for(is_so: Callable[[], object], seconds: float = 60.0) -> bool:
    """Whether the condition became true in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if is_so():
            return True
        time.sleep(0.1)
    return False
