"""Runs of the command line in the test process, on the bundled scene with tiny networks."""

from __future__ import annotations

import sys
from pathlib import Path

import exp_runner
from models.checkpoints.ours import Checkpoint, load_checkpoint

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
    return ["--conf", str(ROOT / "confs/debug.conf"), *arguments, *flags]


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
