"""Measure steps on a GPU: `python -m benchmarks.gpu_steps OUT.json`; for other measurements see --help.

Times, Jittor's pool, and the share of the rate of a float32 product on the GPU; with --tf32 times with TF32 products;
with --importance memory for several n_importance; with --flat the memory growth of a long run; with --peer the
published code in PyTorch on the same GPU. With --rehearse all of it at small sizes on a CPU, where the values are
meaningless.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.flops import matmul_flops, step_flops
from benchmarks.shapes import FULL, FULL_OUTSIDE, ROOT, SMALL, Shape, make_job, shape_conf, write_job
from data.errors import UserError, crash_report
from models.machine import backend

WARM_UP = 5
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
    if given.peer:
        found = _peer(given.peer, first, given.device)
    elif given.tf32:
        found = {"tf32": [_shape(shape, sizes.steps, "train.tf32=true") for shape in sizes.shapes]}
    elif given.importance:
        shapes = [Shape(first.rays, first.samples, importance) for importance in given.importance]
        found = {"sweep": [_shape(shape, min(WARM_UP, sizes.steps)) for shape in shapes]}
    elif given.flat:
        found = {"flat": _flat(given.flat, REHEARSAL.shapes[0] if given.rehearse else SMALL)}
    else:
        rate = _matmul_rate(sizes.product)
        steps = [_shape(shape, sizes.steps) for shape in sizes.shapes]
        for row in steps:
            row["share"] = row["flops"] / row["seconds"] / rate
        found = {"device": backend.device_info().line(), "matmul_flops_per_second": rate, "steps": steps}
    given.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(json.dumps(found, indent=1))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/gpu_steps.py", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rehearse", action="store_true", help="use small sizes; the figures are meaningless")
    parser.add_argument("--tf32", action="store_true", help="with train.tf32, times alone")
    parser.add_argument("--importance", type=int, nargs="+", metavar="N")
    parser.add_argument("--flat", type=int, metavar="STEPS")
    parser.add_argument("--peer", type=Path, metavar="FOLDER", help="a checkout of the published NeuS")
    return parser


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


def _trainer(shape: Shape, *settings: str) -> tuple[Any, Any]:
    """A trainer on the bundled scene at a size, and its conf."""
    from benchmarks.quality.train import Clock, build
    from data.scenes.load import load_scene
    from models.experiment import background

    conf = shape_conf(shape, settings)
    return build(conf, load_scene(conf.dataset, background(conf)), Clock()), conf


def _shape(shape: Shape, steps: int, *settings: str) -> dict[str, Any]:
    """Median time of a step and Jittor's pool after them."""
    from models.machine import memory
    from models.machine.backend import jt

    memory.release()
    trainer, conf = _trainer(shape, *settings)

    def step() -> None:
        trainer.step()
        jt.sync_all(True)

    for _ in range(WARM_UP):
        step()
    times = [_timed(step) for _ in range(steps)]
    trainer.settle()
    losses = trainer.step().found.losses["total"].item()
    return {
        "shape": str(shape),
        "seconds": median(times),
        "pool_mib": memory.pool_bytes() / MIB,
        "flops": step_flops(conf.model, shape.rays).total,
        "loss": float(losses),
    }


def _flat(steps: int, shape: Shape) -> list[dict[str, Any]]:
    """Variables, operations and pool after each quarter of a run."""
    from models.machine import memory
    from models.machine.backend import jt

    trainer, _ = _trainer(shape)
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
    except UserError as error:
        sys.exit(f"error: {error}")
