"""From the command to the first step: with a warm cache, and on a machine that has compiled nothing yet."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.shapes import ROOT
from data.errors import UserError


@dataclass(frozen=True)
class ColdStart:
    """A first run ever, and what it left in Jittor's cache."""

    seconds: float
    core_objects: int  # object files of Jittor itself
    kernels: int  # compiled operations: one per operation, or fused group of them, that the step needs


def first_step(environment: Mapping[str, str]) -> float:
    """Seconds that `exp_runner.py --conf confs/debug.conf` takes to start, do one step, save and end.

    Raises UserError, with the program's last words, where it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        settings = (f"general.base_exp_dir={folder}/exp", "train.end_iter=1", "train.warm_up_end=0")
        command = [sys.executable, "exp_runner.py", "--conf", "confs/debug.conf", "--device", "cpu"]
        command += [flag for setting in settings for flag in ("--set", setting)]
        begin = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, env=dict(environment), capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - begin
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise UserError(f"exp_runner.py ended with status {done.returncode}: {words[-1]}")
    return seconds


def cold_start() -> ColdStart:
    """`first_step` in a home folder without Jittor's cache."""
    with tempfile.TemporaryDirectory() as home:
        environment = {name: value for name, value in os.environ.items() if name != "JITTOR_HOME"} | {"HOME": home}
        seconds = first_step(environment)
        cache = Path(home) / ".cache" / "jittor"
        objects = sum(1 for _ in cache.rglob("obj_files/*.o"))
        kernels = sum(1 for _ in cache.rglob("jit/*.so"))
    return ColdStart(seconds, objects, kernels)
