"""Runs of the command line on the bundled scene with tiny networks: in the test process, or several under mpirun."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

import exp_runner
from models.checkpoints.ours import load_checkpoint
from models.training.checkpoint import Checkpoint

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path(__file__).resolve().parent / "golden"
# Three steps of warm-up and a checkpoint every three: what a resume has to reproduce.
SHORT = ("train.end_iter=6", "train.warm_up_end=2", "train.save_freq=3", "train.val_freq=0", "train.val_mesh_freq=0")


def run(folder: Path, *arguments: str, settings: tuple[str, ...] = SHORT) -> int:
    """`exp_runner.py --conf confs/debug.conf` into `folder`; returns the exit status."""
    return exp_runner.main(_flags(folder, arguments, settings))


def command(folder: Path, *arguments: str, settings: tuple[str, ...] = SHORT) -> list[str]:
    """The same as a command line, for a process of its own."""
    return [sys.executable, str(ROOT / "exp_runner.py"), *_flags(folder, arguments, settings)]


def _flags(folder: Path, arguments: tuple[str, ...], settings: tuple[str, ...]) -> list[str]:
    paths = (
        f"general.base_exp_dir={folder}",
        f"dataset.data_dir={ROOT}/data/demo",
        f"dataset.test_dir={ROOT}/data/demo/test",
        f"dataset.reference_mesh={ROOT}/data/demo/ground_truth.ply",
    )
    flags = [flag for setting in (*paths, *settings) for flag in ("--set", setting)]
    conf = () if "--conf" in arguments else ("--conf", str(ROOT / "confs/debug.conf"))
    return [*conf, *arguments, *flags]


def saved(folder: Path, step: int) -> Checkpoint:
    """The checkpoint of a step."""
    return load_checkpoint(folder / "checkpoints" / f"ckpt_{step:06d}.safetensors")


def contents(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Every array of a checkpoint, bit for bit, and the states that decide the steps to come."""
    arrays = {f"{n}/{k}": a.tobytes() for n, named in checkpoint.tensors.items() for k, a in named.items()}
    arrays |= {f"{m}/{k}": a.tobytes() for m, named in checkpoint.moments.items() for k, a in named.items()}
    states = {key: repr(checkpoint.state[key]).encode() for key in ("sampler", "jitter")}
    return arrays | states | {"steps": repr((checkpoint.step, checkpoint.adam_steps)).encode()}


def everything(checkpoint: Checkpoint) -> dict[str, bytes]:
    """The same with averaged weights and buffers."""
    averages = {f"ema/{n}/{k}": a.tobytes() for n, named in checkpoint.ema.items() for k, a in named.items()}
    return contents(checkpoint) | averages | {f"buffer/{k}": a.tobytes() for k, a in checkpoint.buffers.items()}


BESIDE = Path(sys.executable).with_name("mpirun")
MPIRUN = str(BESIDE) if BESIDE.is_file() else shutil.which("mpirun")
# In a container one is root, and has fewer cores than ranks.
CONTAINER = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMP_NUM_THREADS": "1",
}


needs_mpi = pytest.mark.skipif(
    not (MPIRUN and find_spec("mpi4py")), reason="there is no MPI (pip install -r requirements-mpi.txt)"
)


def started(*programs: Sequence[str], ranks: int = 2) -> subprocess.Popen[str]:
    """`mpirun -n RANKS` of a command line, or of several with one rank each."""
    counts = [ranks] if len(programs) == 1 else [1] * len(programs)
    parts = [["-n", str(count), *program] for count, program in zip(counts, programs, strict=True)]
    line = [word for part in parts for word in (":", *part)][1:]
    environment = os.environ | CONTAINER
    return subprocess.Popen([MPIRUN, *line], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    out, err = process.communicate(timeout=300)
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


def process_of_rank(word: str, rank: int) -> int:
    """The process of a rank under Open MPI, among those in whose command line the word stands."""
    said = f"OMPI_COMM_WORLD_RANK={rank}"
    return next(pid for pid in processes(word) if said in Path(f"/proc/{pid}/environ").read_text().split("\0"))


def wait_for(is_so: Callable[[], object], seconds: float = 180.0) -> bool:
    """Whether the condition became true in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if is_so():
            return True
        time.sleep(0.1)
    return False
