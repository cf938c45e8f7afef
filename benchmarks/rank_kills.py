"""Kill random ranks at random times: check that the last checkpoint is valid and no process remains."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from models.checkpoints.ours import load_checkpoint

ROOT = Path(__file__).resolve().parents[1]
BESIDE = Path(sys.executable).with_name("mpirun")
MPIRUN = str(BESIDE) if BESIDE.is_file() else shutil.which("mpirun") or "mpirun"
RANKS, LAST, EVERY = 2, 60, 5
FIRST_MOMENT, LAST_MOMENT = 3.0, 15.0  # seconds after the start: from the first import to the last step
PATIENCE = 15.0
# Who is killed: a rank, what watches over it, mpirun itself; or mpirun receives a signal.
VICTIMS = ("rank", "rank", "rank", "keeper", "outer", "mpirun", "told")


def environment(threads: int) -> dict[str, str]:
    """Environment variables of mpirun in a container, with root and fewer cores than ranks."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    several = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMP_NUM_THREADS": str(threads)}
    return os.environ | allowed | several


def command(folder: Path) -> list[str]:
    """The command of a resumed training."""
    settings = (f"general.base_exp_dir={folder}", f"dataset.data_dir={ROOT}/data/demo", f"train.end_iter={LAST}")
    settings += (f"train.save_freq={EVERY}", "train.val_freq=0", "train.val_mesh_freq=0")
    flags = [word for setting in settings for word in ("--set", setting)]
    program = [sys.executable, str(ROOT / "exp_runner.py"), "--conf", str(ROOT / "confs/debug.conf")]
    return [MPIRUN, "-n", str(RANKS), *program, "--is_continue", *flags]


def kills(count: int) -> None:
    """Kill `count` trainings and resume each until it is finished; prints the results."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        reference = Path(name) / "unbroken"
        subprocess.run(command(reference), check=True, env=environment(1), capture_output=True)
        expected = contents(reference)
        folder, lost, left, runs = Path(name) / "killed", 0, 0, 0
        slowest, unequal, done = 0.0, 0, 0
        while done < count:
            before = newest(folder)
            seconds, process = killed(folder, random)
            done += 1
            slowest, left = max(slowest, seconds), left + (seconds >= PATIENCE)
            lost += newest(folder) < before
            if newest(folder) == LAST or process == 0:
                runs, unequal = runs + 1, unequal + (contents(folder) != expected)
                shutil.rmtree(folder)
        subprocess.run(command(folder), check=True, env=environment(1), capture_output=True)
        unequal += contents(folder) != expected
        print(
            f"{count} kills: {lost} checkpoints lost, {left} times a process left behind after {PATIENCE:.0f} s, "
            f"all gone after {slowest:.1f} s at the most; {runs + 1} trainings went on to their end, {unequal} unequal"
        )


def killed(folder: Path, random: np.random.Generator) -> tuple[float, int]:
    """Start, kill a process, wait: the seconds until all processes ended, and mpirun's exit status."""
    started = subprocess.Popen(
        command(folder), env=environment(1), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(random.uniform(FIRST_MOMENT, LAST_MOMENT))
    victim = VICTIMS[random.integers(len(VICTIMS))]
    levels = generations(str(folder))
    if victim == "told":
        started.terminate()
    elif victim == "mpirun" or not levels[victim]:
        started.kill()
    else:
        os.kill(levels[victim][random.integers(len(levels[victim]))], signal.SIGKILL)
    begin = time.monotonic()
    while any(generations(str(folder)).values()) and time.monotonic() - begin < PATIENCE:
        time.sleep(0.05)
    return time.monotonic() - begin, started.wait()


def generations(word: str) -> dict[str, list[int]]:
    """The processes of a training by their roles."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if "python" in line[0] and any(word in part for part in line) and "exp_runner.py" in line[1]:
            parents[int(entry.name)] = parent
    outer = [one for one, parent in parents.items() if parent not in parents]
    keepers = [one for one, parent in parents.items() if parent in outer]
    return {"outer": outer, "keeper": keepers, "rank": [one for one, parent in parents.items() if parent in keepers]}


def newest(folder: Path) -> int:
    """The step of the newest readable checkpoint; 0 if there is none."""
    steps = sorted((folder / "checkpoints").glob("ckpt_*.safetensors"), reverse=True)
    return load_checkpoint(steps[0]).step if steps else 0


def contents(folder: Path) -> dict[str, bytes]:
    """Weights and moments after the last step."""
    found = load_checkpoint(folder / "checkpoints" / f"ckpt_{LAST:06d}.safetensors")
    groups = {**found.tensors, **found.moments}
    return {f"{group}/{name}": array.tobytes() for group, named in groups.items() for name, array in named.items()}
