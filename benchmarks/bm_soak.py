"""Check that a long run does not grow: `python -m benchmarks.bm_soak [--steps N] [--first N] [--ema DECAY]`.

Trains confs/debug.conf with images, meshes and checkpoints into a temporary folder, and prints Jittor's counts and the
size of the process at an early step and at the last one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.experiment import Experiment, open_training
from models.machine import backend, memory
from models.machine.backend import jt
from models.methods.conf import ExperimentConfig, load_config
from models.monitoring.logger import RunLogger, complain
from models.runner import Runner

ROOT = Path(__file__).resolve().parents[1]
STEPS, FIRST = 20_000, 1_000
RESULTS_PER_RUN = 20  # images, meshes and checkpoints each
MOST_GROWTH = 0.02  # of the resident memory


@dataclass(frozen=True)
class Census:
    """The live objects after a step."""

    step: int
    counts: dict[str, int]  # Jittor's held variables, living variables, living operations
    resident: int  # bytes

    def line(self) -> str:
        """One line to print."""
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        return f"step {self.step}: {counts}, {self.resident / 1e6:.1f} MB resident"


class CountingRunner(Runner):
    """A runner that counts live objects after some steps, after images and checkpoints of the step are written."""

    def __init__(self, experiment: Experiment, log: RunLogger, steps: Sequence[int]) -> None:
        super().__init__(experiment, log)
        self.steps = steps
        self.found: list[Census] = []

    def _write_due_results(self) -> None:
        """Write the results, then count."""
        super()._write_due_results()
        if self.step in self.steps:
            self.trainer.settle()  # whether a verdict is still unread is a matter of the moment
            memory.release()
            self.found.append(Census(self.step, dict(jt.liveness_info()), backend.resident_bytes()))


def soak(folder: Path, steps: int, first: int, *settings: str) -> list[Census]:
    """Train `steps` steps into a folder; returns the counts after `first` steps and after the last one."""
    every = max(1, steps // RESULTS_PER_RUN)
    frequencies = (f"train.{name}={every}" for name in ("val_freq", "val_mesh_freq", "save_freq"))
    run = (f"general.base_exp_dir={folder}", f"train.end_iter={steps}", "train.batch_size=16")
    conf = _debug_conf(*run, *frequencies, *settings)
    with RunLogger(folder, quiet=True) as log:
        runner = CountingRunner(open_training(conf, False, None, False, complain), log, (first, steps))
        runner.train()
    return runner.found


def _debug_conf(*settings: str) -> ExperimentConfig:
    """confs/debug.conf for any current folder, with a coarse mesh and small images."""
    small = ("train.mesh_resolution=16", "train.validate_resolution_level=20", "train.warm_up_end=1")
    scene = f"dataset.data_dir={ROOT}/data/demo"
    return load_config(ROOT / "confs/debug.conf", overrides=(scene, *small, *settings))


def main(argv: Sequence[str] | None = None) -> int:
    """Run and print; exit status 1 if a count differs, or memory grew by more than MOST_GROWTH."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--first", type=int, default=FIRST)
    parser.add_argument("--ema", type=float, default=0.0)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        early, late = soak(Path(folder), options.steps, options.first, f"train.ema_decay={options.ema}")
    growth = late.resident / early.resident - 1.0
    print(f"{early.line()}\n{late.line()}\nresident memory grew by {100 * growth:.2f} %")
    return 0 if early.counts == late.counts and growth < MOST_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
