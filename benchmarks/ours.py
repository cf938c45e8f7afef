"""Our side of a measurement, in a separate process: `python -m benchmarks.ours JOB.npz [plain]`; see bm_step.py."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.flops import matmul_flops
from benchmarks.profile_step import profile
from benchmarks.report import PLAIN
from benchmarks.serve import serve
from benchmarks.shapes import read_job
from data.rays import PixelBatch
from models.fields.state import export_state
from models.machine import backend
from models.machine.backend import jt
from models.methods.conf import parse_config
from models.methods.registry import build_model
from models.ops.kernel import NATIVE, REFERENCE, use
from models.results.render import render_view
from models.training.trainer import Trainer

IMAGE_CHUNK = 1024  # rays of an image at a time, on both sides
MATMUL_SHAPE = (16384, 256, 256)  # rows of a large batch through one hidden layer of the released networks
MATMUL_REPEATS = 9  # one takes milliseconds, too short to be trusted alone


class OneBatch:
    """Replaces `PixelSampler`: returns the same batch each time."""

    def __init__(self, batch: PixelBatch) -> None:
        self._batch = batch

    def next(self) -> PixelBatch:
        """The same batch at every call."""
        return self._batch


class Ours:
    """A trainer built from a job, and its commands."""

    def __init__(self, path: Path) -> None:
        meta, batch, self._image = read_job(path)
        self._side = int(meta["image_side"])
        self._conf = parse_config(str(meta["conf"]), str(path))
        initial, jitter = (np.random.default_rng(int(meta["seed"])) for _ in range(2))
        model = build_model(self._conf.model, self._conf.train, initial)
        self._trainer = Trainer(model, OneBatch(batch), self._conf.train, jitter)

    def export(self, path: str) -> dict[str, Any]:
        """Write the parameters of the networks, so that the other side starts from the same ones."""
        networks = self._trainer.networks.items()
        states = {f"{network}/{name}": v for network, field in networks for name, v in export_state(field).items()}
        np.savez(path, **states)
        return {}

    def step(self) -> dict[str, Any]:
        """One training step, from the batch in NumPy arrays to updated weights."""
        begin = time.perf_counter()
        output = self._trainer.step()
        jt.sync_all(True)
        return {"seconds": time.perf_counter() - begin, "loss": float(output.found.losses["total"].item())}

    def image(self, path: str) -> dict[str, Any]:
        """A validation image; its colours are written to `path`."""
        begin = time.perf_counter()
        shape = (self._side, self._side)
        view = render_view(self._trainer.model, self._image, shape, IMAGE_CHUNK, self._trainer.context)
        seconds = time.perf_counter() - begin
        np.save(path, view.rgb)
        return {"seconds": seconds}

    def profile(self) -> dict[str, Any]:
        """Seconds of a step by phase and kind of operation."""
        seconds, phases = profile(self._trainer)
        return {"seconds": seconds, "phases": phases}


class Matmul:
    """The matrix product that measures the speed of the machine."""

    def __init__(self) -> None:
        rows, inner, columns = MATMUL_SHAPE
        generator = np.random.default_rng(0)
        self._left = jt.array(generator.standard_normal((rows, inner), dtype=np.float32))
        self._right = jt.array(generator.standard_normal((inner, columns), dtype=np.float32))

    def matmul(self) -> dict[str, Any]:
        """The median time of several products; the rate in operations per second."""
        times = []
        for _ in range(MATMUL_REPEATS):
            begin = time.perf_counter()
            jt.matmul(self._left, self._right).sync(True)
            times.append(time.perf_counter() - begin)
        seconds = median(times)
        return {"seconds": seconds, "rate": matmul_flops(*MATMUL_SHAPE) / seconds}


def about() -> dict[str, Any]:
    """Device, threads and version."""
    info = backend.device_info()
    notes = [info.warning] if info.warning else []
    return {"about": {"device": info.name, "threads": info.threads, "jittor": jt.__version__, "notes": notes}}


def main(arguments: list[str]) -> None:
    """Serve a job: of the trainer, with PLAIN on the reference operations, or of the matrix product."""
    backend.select("cpu")
    if not arguments:
        product = Matmul()
        serve({"about": about, "step": product.matmul})
        return
    with use(REFERENCE if PLAIN in arguments[1:] else NATIVE):
        ours = Ours(Path(arguments[0]))
        serve(
            {"about": about, "export": ours.export, "step": ours.step, "image": ours.image, "profile": ours.profile},
        )


if __name__ == "__main__":
    main(sys.argv[1:])
