"""Measure steps on a GPU: `python -m benchmarks.gpu_steps OUT.json`; for other measurements see --help.

Times in float32 and with TF32 products, Jittor's pool, and the share of the rate of a float32 product on the GPU. With
--rehearse all of it at small sizes on a CPU, where the values are meaningless.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import gpu_trace
from benchmarks.flops import step_flops
from benchmarks.report import MIB, ROOT
from benchmarks.shapes import FULL, FULL_OUTSIDE, SMALL, Shape, shape_conf, write_job
from benchmarks.workers import Worker
from data.errors import UserError
from data.prepare.load import load_scene
from models.machine import backend
from models.methods.conf import ExperimentConfig, load_config
from models.results.experiment import background

WARM_UP, STEPS, TRACED = 5, 50, 5
SHAPES, PRODUCT = (FULL, FULL_OUTSIDE, SMALL), (262144, 256, 256)  # rows enough to keep a GPU busy for a while
REHEARSED_SHAPES, REHEARSED_PRODUCT = (Shape(16, 8, 8), Shape(16, 8, 8, 4)), (256, 256, 256)
FAST, REHEARSED_FAST = (2**13, 2**16, 2**18), (512, 1024)  # samples of a step
MOST_RAYS = 2**15  # of a batch of the fast conf


def main(arguments: Sequence[str]) -> None:
    """Measure and write the file."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu_steps.py", description=__doc__)
    add = parser.add_argument
    add("out", type=Path)
    add("--device", default="cuda")
    add("--rehearse", action="store_true", help="use small sizes; the figures are meaningless")
    add("--once", action="store_true", help="one step of each size and of fast, which compiles its operations")
    add("--fast", action="store_true", help="steps of confs/fast.conf at several numbers of samples")
    add("--trace", action="store_true", help="every kernel of some steps")
    add("--tf32", action="store_true", help="with --trace: with products in TF32")
    add("--peer", type=Path, metavar="FOLDER", help="the published code in PyTorch on the same GPU")
    given = parser.parse_args(arguments)
    shapes = REHEARSED_SHAPES if given.rehearse else SHAPES
    fast = [_fast_conf(samples) for samples in (REHEARSED_FAST if given.rehearse else FAST)]
    steps = 2 if given.rehearse else STEPS
    backend.select(given.device)
    if given.peer:
        found = _peer(given.peer, shape_conf(shapes[0]), given.device, steps)
    elif given.trace:
        found = _traced(shape_conf(shapes[0], (f"train.tf32={str(given.tf32).lower()}",)), given.device)
    elif given.once:
        found = {"compiled": [_timed_steps(conf, 0) for conf in (*map(shape_conf, shapes), fast[0])]}
    elif given.fast:
        found = {"fast": [{"samples": conf.model.packed.samples, **_timed_steps(conf, steps)} for conf in fast]}
    else:
        found = _steps(shapes, steps, REHEARSED_PRODUCT if given.rehearse else PRODUCT)
    given.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(json.dumps(found, indent=1))


def _steps(shapes: Sequence[Shape], steps: int, product: tuple[int, int, int]) -> dict[str, Any]:
    """The released steps in float32 and with TF32, and the share of the rate of a product."""
    from benchmarks.ours import matmul_rate

    rate = matmul_rate(*product, at_once=20)
    found: dict[str, Any] = {"device": backend.device_info().line(), "rate": rate}
    for name, is_reduced in (("steps", "false"), ("tf32", "true")):
        confs = [(shape, shape_conf(shape, (f"train.tf32={is_reduced}",))) for shape in shapes]
        found[name] = [{"shape": str(shape), **_timed_steps(conf, steps)} for shape, conf in confs]
    found["share"] = step_flops(shape_conf(shapes[0]).model, shapes[0].rays) / found["steps"][0]["seconds"] / rate
    return found


def _trainer(conf: ExperimentConfig) -> Any:
    """A trainer on the conf's scene."""
    from models.methods.registry import build_model, decide
    from models.training.trainer import Trainer, generators

    initial, pixels, jitter = generators(conf.train.seed)
    scene = load_scene(conf.dataset, background(conf))
    model = build_model(conf.model, conf.train, initial, decide(conf.model, conf.train, scene, {}))
    sampler = model.sampler(scene, conf.train.batch_size, pixels)
    model.begin()
    averaged = copy.deepcopy(model, {id(sampler): sampler}) if conf.train.ema_decay > 0 else None
    return Trainer(model, sampler, conf.train, jitter, averaged)


def _fast_conf(samples: int) -> ExperimentConfig:
    """The fast conf with that many samples a step, and with all levels of its grid from the first step on."""
    settings = (f"model.packed.samples={samples}", f"train.batch_size={min(samples, MOST_RAYS)}")
    settings += (f"dataset.data_dir={ROOT / 'data/demo'}", "model.packed.first_levels=32")
    return load_config(ROOT / "confs/fast.conf", "benchmark", settings)


def _timed_steps(conf: ExperimentConfig, steps: int) -> dict[str, float]:
    """Median time of `steps` steps after a warm-up, or of the first step, and Jittor's pool after them."""
    from benchmarks.ours import timed
    from models.machine import memory

    memory.release()
    trainer = _trainer(conf)
    times = [timed(trainer.step) for _ in range(WARM_UP + steps if steps else 1)]
    trainer.settle()
    losses = trainer.step().losses["total"].item()
    seconds = median(times[WARM_UP:] or times)
    return {"seconds": seconds, "pool_mib": memory.pool_bytes() / MIB, "loss": float(losses)}


def _traced(conf: ExperimentConfig, device: str) -> dict[str, Any]:
    """What the kernels of some steps take."""
    from benchmarks.ours import timed

    trainer = _trainer(conf)
    for _ in range(WARM_UP):
        timed(trainer.step)
    if device != "cuda":  # there is nothing to record
        return gpu_trace.summary([], 1)
    home = backend.cuda_ready(0).home
    with gpu_trace.recorded(Path(home.plan.toolkit.nvcc).resolve().parents[1]) as launches:
        timed(lambda: [trainer.step() for _ in range(TRACED)])
    return gpu_trace.summary(launches, TRACED)


def _peer(folder: Path, conf: ExperimentConfig, device: str, steps: int) -> dict[str, Any]:
    """The published code's step from our weights, in a process with PyTorch on the device."""
    from benchmarks.ours import save_weights
    from models.methods.registry import build_model

    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    interpreter = os.environ.get("PEER_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as name:
        job, weights, log = (Path(name) / part for part in ("job.npz", "weights.npz", "peer.log"))
        write_job(job, conf)
        save_weights(weights, build_model(conf.model, conf.train, np.random.default_rng(0)))
        parts = (interpreter, ROOT / "benchmarks" / "peer.py", folder.resolve(), job, weights, device)
        with Worker("the published code", [*map(str, parts)], environment, log) as worker:
            times = [[worker.ask("step")["seconds"] for _ in range(WARM_UP + steps)]]
            memory = worker.ask("use_tf32")
            times.append([worker.ask("step")["seconds"] for _ in range(WARM_UP + steps)])
    seconds, reduced = (median(each[WARM_UP:]) for each in times)
    return {"seconds": seconds, "tf32_seconds": reduced, "peak_mib": memory["peak_mib"]}


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"error: {error}")
