"""Measure steps on a GPU: `python -m benchmarks.gpu_steps OUT.json`; for other measurements see --help.

Times in float32 and with TF32 products, Jittor's pool, and the share of the rate of a float32 product on the GPU; with
--fast the times of confs/fast.conf at several numbers of samples; with --trace every kernel of some steps; with
--importance memory for several n_importance; with --flat the memory growth of a long run; with --peer the published
code in PyTorch on the same GPU. With --rehearse all of it at small sizes on a CPU, where the values are meaningless.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import gpu_trace
from benchmarks.flops import matmul_flops, step_flops
from benchmarks.shapes import FULL, FULL_OUTSIDE, ROOT, SMALL, Shape, make_job, shape_conf, write_job
from data.errors import UserError, crash_report
from models.machine import backend
from models.methods.conf import ExperimentConfig, load_config

WARM_UP = 5
TRACED, PROFILED = 5, 2  # steps
MOST_RAYS = 2**15  # of a batch of the fast conf
PRODUCTS = 20
MIB = 2**20


@dataclass(frozen=True)
class Sizes:
    """Sizes and repetitions of the measurements."""

    shapes: tuple[Shape, ...] = (FULL, FULL_OUTSIDE, SMALL)
    steps: int = 50
    product: tuple[int, int, int] = (262144, 256, 256)  # rows enough to keep a GPU busy for a while


REHEARSAL = Sizes((Shape(16, 8, 8), Shape(16, 8, 8, 4)), 2, (256, 256, 256))


def main(arguments: Sequence[str]) -> None:
    """Measure and write the file."""
    given = _parser().parse_args(arguments)
    sizes = REHEARSAL if given.rehearse else Sizes()
    first = sizes.shapes[0]
    backend.select(given.device)
    if given.once:
        sizes = Sizes(sizes.shapes, 0, sizes.product)
    if given.peer:
        found = _peer(given.peer, first, given.device)
    elif given.trace or given.profiled:
        conf = shape_conf(first, ("train.tf32=true",) if given.tf32 else ())
        found = _recorded(conf, given.out.with_suffix(".csv") if given.trace else None, given.device)
    elif given.importance:
        shapes = [Shape(first.rays, first.samples, importance) for importance in given.importance]
        found = {"sweep": [_shape(shape, min(WARM_UP, sizes.steps)) for shape in shapes]}
    elif given.flat:
        found = {"flat": _flat(given.flat, REHEARSAL.shapes[0] if given.rehearse else SMALL)}
    else:
        found = {} if given.fast and not given.once else _steps(sizes)
        if given.fast:
            found["fast"] = [{"samples": n, **_timed_steps(_fast_conf(n), sizes.steps)} for n in given.fast]
    given.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(json.dumps(found, indent=1))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/gpu_steps.py", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rehearse", action="store_true", help="use small sizes; the figures are meaningless")
    parser.add_argument("--once", action="store_true", help="one step of each size, which compiles its operations")
    parser.add_argument("--fast", type=int, nargs="+", metavar="SAMPLES")
    parser.add_argument("--trace", action="store_true", help="record all kernels of some steps in a .csv file")
    parser.add_argument("--tf32", action="store_true", help="with --trace: with products in TF32")
    parser.add_argument("--profiled", action="store_true", help="steps between CUDA's calls for a profiler")
    parser.add_argument("--importance", type=int, nargs="+", metavar="N")
    parser.add_argument("--flat", type=int, metavar="STEPS")
    parser.add_argument("--peer", type=Path, metavar="FOLDER", help="a checkout of the published NeuS")
    return parser


def _steps(sizes: Sizes) -> dict[str, Any]:
    """The released steps in float32 and with TF32, and the share of the rate of a product."""
    rate = _matmul_rate(sizes.product)
    steps, reduced = (
        [_shape(shape, sizes.steps, f"train.tf32={is_reduced}") for shape in sizes.shapes]
        for is_reduced in ("false", "true")
    )
    for row in steps:
        row["share"] = row["flops"] / row["seconds"] / rate
    return {"device": backend.device_info().line(), "matmul_flops_per_second": rate, "steps": steps, "tf32": reduced}


def _matmul_rate(sizes: tuple[int, int, int]) -> float:
    """Operations per second of a float32 product."""
    from models.machine.backend import jt

    rows, inner, columns = sizes
    rng = np.random.default_rng(0)
    left, right = (jt.array(rng.normal(size=shape).astype(np.float32)) for shape in ((rows, inner), (inner, columns)))

    def several() -> None:
        for _ in range(PRODUCTS):
            jt.matmul(left, right).sync()
        jt.sync_all(True)

    several()
    return PRODUCTS * matmul_flops(*sizes) / min(_timed(several) for _ in range(3))


def _trainer(conf: ExperimentConfig) -> Any:
    """A trainer on the bundled scene."""
    from benchmarks.quality.train import Clock, build
    from data.scenes.load import load_scene
    from models.experiment import background

    return build(conf, load_scene(conf.dataset, background(conf)), Clock())


def _fast_conf(samples: int) -> ExperimentConfig:
    """The fast conf with that many samples a step, and with all levels of its grid from the first step on."""
    settings = (f"model.packed.samples={samples}", f"train.batch_size={min(samples, MOST_RAYS)}")
    settings += (f"dataset.data_dir={ROOT / 'data/demo'}", "model.packed.first_levels=32")
    return load_config(ROOT / "confs/fast.conf", "benchmark", settings)


def _shape(shape: Shape, steps: int, *settings: str) -> dict[str, Any]:
    """Median time of a step of a size, and its arithmetic."""
    conf = shape_conf(shape, settings)
    return {"shape": str(shape), **_timed_steps(conf, steps), "flops": step_flops(conf.model, shape.rays).total}


def _timed_steps(conf: ExperimentConfig, steps: int) -> dict[str, float]:
    """Median time of `steps` steps after a warm-up, or of the first step, and Jittor's pool after them."""
    from models.machine import memory

    memory.release()
    trainer = _trainer(conf)
    step = partial(_run, trainer, 1)
    times = [_timed(step) for _ in range(WARM_UP + steps if steps else 1)]
    trainer.settle()
    losses = trainer.step().found.losses["total"].item()
    return {
        "seconds": median(times[WARM_UP:] or times),
        "pool_mib": memory.pool_bytes() / MIB,
        "loss": float(losses),
    }


def _run(trainer: Any, steps: int) -> None:
    """Steps as in a training, which waits for the GPU once a step, and at their end for all of them."""
    from models.machine.backend import jt

    for _ in range(steps):
        trainer.step()
    jt.sync_all(True)


def _recorded(conf: ExperimentConfig, path: Path | None, device: str) -> dict[str, int]:
    """Steps of which each kernel is recorded in a file, or between CUDA's calls for a profiler if there is none."""
    trainer = _trainer(conf)
    _run(trainer, WARM_UP)
    if device != "cuda":  # there is nothing to record
        return {"traced_steps": 0}
    if path is None:
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuProfilerStart()
        _run(trainer, PROFILED)
        driver.cuProfilerStop()
        return {"profiled_steps": PROFILED}
    home = backend.cuda_ready(0).home
    with gpu_trace.recorded(Path(home.plan.toolkit.nvcc).resolve().parents[1]) as launches:
        _run(trainer, TRACED)
    gpu_trace.write(path, launches)
    return {"traced_steps": TRACED}


def _flat(steps: int, shape: Shape) -> list[dict[str, Any]]:
    """Variables, operations and pool after each quarter of a run."""
    from models.machine import memory
    from models.machine.backend import jt

    trainer = _trainer(shape_conf(shape))
    rows = []
    for step in range(1, steps + 1):
        trainer.step()
        if step % max(1, steps // 4) == 0:
            trainer.settle()
            jt.sync_all(True)
            rows.append({"step": step, "pool_mib": memory.pool_bytes() / MIB, **jt.liveness_info()})
    return rows


def _timed(work: Callable[[], None]) -> float:
    """Wall-clock seconds."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _peer(folder: Path, shape: Shape, device: str) -> dict[str, Any]:
    """The published code's step, in a process with PyTorch on the device; raises UserError with its last output."""
    with tempfile.TemporaryDirectory() as name:
        job, weights = Path(name) / "job.npz", Path(name) / "weights.npz"
        conf = shape_conf(shape)
        write_job(job, make_job(conf))
        _export(conf, weights)
        interpreter = os.environ.get("PEER_PYTHON", sys.executable)
        program = [interpreter, ROOT / "benchmarks" / "peer_cuda.py", folder.resolve(), job, weights, device]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        words = crash_report(done.stderr.strip() or done.stdout.strip() or "it said nothing")
        print(*words, sep="\n", flush=True)
        raise UserError(f"--peer {folder}: the published code ends with status {done.returncode}: {words[-1]}")
    return {"peer": json.loads(done.stdout.splitlines()[-1])}


def _export(conf: Any, weights: Path) -> None:
    """Our initial weights, from which the published code starts too."""
    from models.fields.state import export_state
    from models.methods.registry import build_model

    networks = build_model(conf.model, conf.train, np.random.default_rng(0)).networks.items()
    np.savez(weights, **{f"{name}/{key}": v for name, field in networks for key, v in export_state(field).items()})


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (UserError, gpu_trace.TraceError) as error:
        sys.exit(f"error: {error}")
