"""Steps on a card: `python -m benchmarks.gpu_steps OUT.json [--importance N ...] [--flat STEPS] [--peer FOLDER]`.

Times, Jittor's pool, and the share of the rate of the card's own float32 product; with --importance memory over
n_importance; with --flat what a long run leaves behind; with --peer the published code in PyTorch on the same card.
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
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.flops import matmul_flops, step_flops
from benchmarks.shapes import FULL, FULL_OUTSIDE, ROOT, SMALL, Shape, make_job, shape_conf, write_job
from models.machine import backend

WARM_UP, STEPS = 5, 50
PRODUCT = (262144, 256, 256)  # rows enough to keep a card busy for a while
PRODUCTS = 20
MIB = 2**20


def main(arguments: Sequence[str]) -> None:
    """Measure and write the file."""
    given = _parser().parse_args(arguments)
    backend.select(given.device)
    if given.peer:
        found = _peer(given.peer)
    elif given.importance:
        shapes = [Shape(FULL.rays, FULL.samples, importance) for importance in given.importance]
        found = {"sweep": [_shape(shape, WARM_UP) for shape in shapes]}
    elif given.flat:
        found = {"flat": _flat(given.flat)}
    else:
        rate = _matmul_rate()
        steps = [_shape(shape, STEPS) for shape in (FULL, FULL_OUTSIDE, SMALL)]
        for row in steps:
            row["share"] = row["flops"] / row["seconds"] / rate
        found = {"device": backend.device_info().line(), "matmul_flops_per_second": rate, "steps": steps}
    given.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(json.dumps(found, indent=1))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/gpu_steps.py", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--importance", type=int, nargs="+", metavar="N")
    parser.add_argument("--flat", type=int, metavar="STEPS")
    parser.add_argument("--peer", type=Path, metavar="FOLDER", help="a checkout of the published NeuS")
    return parser


def _matmul_rate() -> float:
    """Operations per second of a float32 product."""
    from models.machine.backend import jt

    rows, inner, columns = PRODUCT
    rng = np.random.default_rng(0)
    left, right = (jt.array(rng.normal(size=shape).astype(np.float32)) for shape in ((rows, inner), (inner, columns)))

    def several() -> None:
        for _ in range(PRODUCTS):
            jt.matmul(left, right).sync()
        jt.sync_all(True)

    several()
    return PRODUCTS * matmul_flops(*PRODUCT) / min(_timed(several) for _ in range(3))


def _trainer(shape: Shape) -> tuple[Any, Any]:
    """A trainer on the bundled scene at a size, and its conf."""
    from benchmarks.quality.train import build
    from data.scenes.load import load_scene
    from models.experiment import background

    conf = shape_conf(shape)
    return build(conf, load_scene(conf.dataset, background(conf))), conf


def _shape(shape: Shape, steps: int) -> dict[str, Any]:
    """Median time of a step and Jittor's pool after them."""
    from models.machine import memory
    from models.machine.backend import jt

    memory.release()
    trainer, conf = _trainer(shape)

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


def _flat(steps: int) -> list[dict[str, Any]]:
    """Variables, operations and pool at the quarters of a run: the first is a quarter of it in."""
    from models.machine import memory
    from models.machine.backend import jt

    trainer, _ = _trainer(SMALL)
    rows = []
    for step in range(1, steps + 1):
        trainer.step()
        if step % max(1, steps // 4) == 0:
            trainer.settle()
            jt.sync_all(True)
            rows.append({"step": step, "pool_mib": memory.pool_bytes() / MIB, **jt.liveness_info()})
    return rows


def _timed(work: Callable[[], None]) -> float:
    """Seconds of the clock."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _peer(folder: Path) -> dict[str, Any]:
    """The published code's step at the released size, in a process with PyTorch on the card."""
    with tempfile.TemporaryDirectory() as name:
        job, weights = Path(name) / "job.npz", Path(name) / "weights.npz"
        conf = shape_conf(FULL)
        write_job(job, make_job(conf))
        _export(conf, weights)
        program = [sys.executable, ROOT / "benchmarks" / "peer_cuda.py", folder.resolve(), job, weights]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    return {"peer": json.loads(done.stdout.splitlines()[-1])}


def _export(conf: Any, weights: Path) -> None:
    """Our initial weights, which the published code starts from too."""
    from models.fields.state import export_state
    from models.kinds.registry import build_model

    networks = build_model(conf.model, conf.train, np.random.default_rng(0)).networks.items()
    np.savez(weights, **{f"{name}/{key}": v for name, field in networks for key, v in export_state(field).items()})


if __name__ == "__main__":
    main(sys.argv[1:])
