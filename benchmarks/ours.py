"""Our side of a measurement, in a separate process: `python -m benchmarks.ours [JOB.npz]`; see bm_step.py."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.flops import matmul_flops
from benchmarks.profile_step import profile
from benchmarks.serve import serve
from benchmarks.shapes import read_job
from data.rays import PixelBatch
from models.conf import parse_config
from models.fields.state import export_state
from models.machine import jittor_import
from models.machine.backend import jt
from models.methods.protocol import Model
from models.methods.registry import build_model
from models.plan import GIVEN, NONE, Decision, TrainingPlan, wants_masks
from models.training.trainer import Trainer

MATMUL_SHAPE = (16384, 256, 256)  # rows of a large batch through one hidden layer of the released networks
MATMUL_REPEATS = 15  # one takes milliseconds, too short to be trusted alone


class OneBatch:
    """Replaces `PixelSampler`: returns the same batch each time."""

    def __init__(self, batch: PixelBatch) -> None:
        self._batch = batch

    def next(self) -> PixelBatch:
        """The same batch at every call."""
        return self._batch


def timed(work: Callable[[], Any]) -> float:
    """Wall-clock seconds of `work` and of all that it launches."""
    begin = time.perf_counter()
    work()
    jt.sync_all(True)
    return time.perf_counter() - begin


def matmul_rate(rows: int, inner: int, columns: int, at_once: int = 1) -> float:
    """Operations per second of float32 products, `at_once` without a wait: the measure of the machine."""
    generator = np.random.default_rng(0)
    shapes = (rows, inner), (inner, columns)
    left, right = (jt.array(generator.standard_normal(shape, dtype=np.float32)) for shape in shapes)

    def several() -> None:
        for _ in range(at_once):
            jt.matmul(left, right).sync()

    seconds = median(timed(several) for _ in range(MATMUL_REPEATS))
    return at_once * matmul_flops(rows, inner, columns) / seconds


def save_weights(path: Path | str, model: Model) -> None:
    """Write the parameters of the networks, so that the other side starts from the same ones."""
    fields = model.networks.items()
    np.savez(path, **{f"{name}/{key}": v for name, field in fields for key, v in export_state(field).items()})


class Ours:
    """A trainer built from a job, and its commands."""

    def __init__(self, path: Path) -> None:
        meta, batch = read_job(path)
        conf = parse_config(str(meta["conf"]), str(path))
        initial, jitter = (np.random.default_rng(int(meta["seed"])) for _ in range(2))
        plan = TrainingPlan(masks=Decision(GIVEN if wants_masks(conf.train) else NONE))
        model = build_model(conf.model, conf.train, initial, plan)
        self._trainer = Trainer(model, OneBatch(batch), conf.train, jitter)

    def export(self, path: str) -> dict[str, Any]:
        """Write the weights."""
        save_weights(path, self._trainer.model)
        return {}

    def step(self) -> dict[str, Any]:
        """One training step, from the batch in NumPy arrays to updated weights."""
        begin = time.perf_counter()
        output = self._trainer.step()
        jt.sync_all(True)
        return {"seconds": time.perf_counter() - begin, "loss": float(output.losses["total"].item())}

    def profile(self) -> dict[str, Any]:
        """Seconds of a step by phase and kind of operation."""
        seconds, phases = profile(self._trainer)
        return {"seconds": seconds, "phases": phases}


def main(arguments: list[str]) -> None:
    """Serve a job, or without one the rate of a matrix product."""
    jittor_import.select("cpu")
    if not arguments:
        serve({"rate": lambda: {"rate": matmul_rate(*MATMUL_SHAPE)}})
        return
    ours = Ours(Path(arguments[0]))
    serve({"export": ours.export, "step": ours.step, "profile": ours.profile})


if __name__ == "__main__":
    main(sys.argv[1:])
