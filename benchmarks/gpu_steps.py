"""Measure steps on a GPU: `python -m benchmarks.gpu_steps OUT.json`; for other measurements see --help.

A step of a released recipe in float32 and with reduced products: timed one by one as in the published loop, pipelined
with one synchronisation, the host's time to enqueue it, and the functions in which the host spends it. With --rehearse
all of it at small sizes on a CPU, where the values are meaningless.
"""

from __future__ import annotations

import argparse
import copy
import cProfile
import json
import os
import pstats
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import gpu_trace
from benchmarks.flops import step_flops
from benchmarks.report import MIB, ROOT
from benchmarks.shapes import FULL, FULL_OUTSIDE, Shape, shape_conf, write_job
from benchmarks.workers import Worker
from data.errors import UserError
from data.prepare.load import load_scene
from models.checkpoints.scenes import measured
from models.conf import ExperimentConfig, load_config
from models.machine import backend, jittor_import
from models.results.experiment import background

WARM_UP, STEPS, TRACED = 5, 50, 5
SHAPES, PRODUCT = {"wmask": FULL, "womask": FULL_OUTSIDE}, (262144, 256, 256)  # rows enough to keep a GPU busy
REHEARSED_SHAPES, REHEARSED_PRODUCT = {"wmask": Shape(16, 8, 8), "womask": Shape(16, 8, 8, 4)}, (256, 256, 256)
MODES = {"float32": "false", "reduced": "true"}  # of products, with the value of train.tf32
FAST, REHEARSED_FAST = (2**13, 2**16, 2**18), (512, 1024)  # samples of a step
MOST_RAYS = 2**15  # of a batch of the fast conf
FUNCTIONS = 30  # of the profile of the host


def main(arguments: Sequence[str]) -> None:
    """Measure and write the file."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu_steps.py", description=__doc__)
    add = parser.add_argument
    add("out", type=Path)
    add("--device", default="cuda")
    add("--recipe", choices=tuple(SHAPES), default="wmask")
    add("--rehearse", action="store_true", help="use small sizes; the figures are meaningless")
    add("--once", action="store_true", help="one step in each mode, which compiles its operations")
    add("--fast", action="store_true", help="steps of confs/fast.conf at several numbers of samples")
    add("--trace", action="store_true", help="every kernel of some steps, in each mode")
    add("--peer", type=Path, metavar="FOLDER", help="the published code in PyTorch on the same GPU")
    given = parser.parse_args(arguments)
    shape = (REHEARSED_SHAPES if given.rehearse else SHAPES)[given.recipe]
    confs = {name: shape_conf(shape, (f"train.tf32={value}",)) for name, value in MODES.items()}
    steps = 2 if given.rehearse else STEPS
    jittor_import.select(given.device)
    if given.peer:
        found = _peer(given.peer, confs["float32"], given.device, steps)
    elif given.trace:
        found = {name: _traced(conf, given.device) for name, conf in confs.items()}
    elif given.once:
        found = {name: _first_step(conf) for name, conf in confs.items()}
    elif given.fast:
        fast = [_fast_conf(samples) for samples in (REHEARSED_FAST if given.rehearse else FAST)]
        found = {"fast": [{"samples": conf.model.packed.samples, **_measured(conf, steps)} for conf in fast]}
    else:
        found = _steps(confs, shape, steps, REHEARSED_PRODUCT if given.rehearse else PRODUCT)
    given.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(json.dumps(found, indent=1))


def _steps(
    confs: dict[str, ExperimentConfig], shape: Shape, steps: int, product: tuple[int, int, int]
) -> dict[str, Any]:
    """The steps in each mode, and the share of the rate of a float32 product."""
    from benchmarks.ours import matmul_rate

    rate = matmul_rate(*product, at_once=20)
    found = {"device": backend.device_info().line(), "rate": rate, "shape": str(shape)}
    found |= {name: _measured(conf, steps) for name, conf in confs.items()}
    operations = step_flops(confs["float32"].model, shape.rays)
    return found | {"share": operations / found["float32"]["seconds"] / rate}


def _trainer(conf: ExperimentConfig) -> Any:
    """A trainer on the conf's scene."""
    from models.methods.registry import build_model, decide
    from models.plan import EarlierPlan
    from models.training.trainer import Trainer, generators

    initial, pixels, jitter = generators(conf.train.seed)
    scene = load_scene(conf.dataset, background(conf))
    model = build_model(conf.model, conf.train, initial, decide(conf.model, conf.train, measured(scene), EarlierPlan()))
    sampler = model.sampler(scene, conf.train.batch_size, pixels)
    model.begin()
    averaged = copy.deepcopy(model, {id(sampler): sampler}) if conf.train.ema_decay > 0 else None
    return Trainer(model, sampler, conf.train, jitter, averaged)


def _fast_conf(samples: int) -> ExperimentConfig:
    """The fast conf with that many samples a step, and with all levels of its grid from the first step on."""
    settings = (f"model.packed.samples={samples}", f"train.batch_size={min(samples, MOST_RAYS)}")
    settings += (f"dataset.data_dir={ROOT / 'data/demo'}", "model.packed.first_levels=32")
    return load_config(ROOT / "confs/fast.conf", "benchmark", settings)


def _first_step(conf: ExperimentConfig) -> dict[str, float]:
    """The time of a step that compiles its operations."""
    from benchmarks.ours import timed

    return {"seconds": timed(_trainer(conf).step)}


def _measured(conf: ExperimentConfig, steps: int) -> dict[str, Any]:
    """Of a step after a warm-up: the median of `steps` that are waited for; the mean of as many with one wait at the
    end, and until that wait; the functions of these; Jittor's pool and the loss afterwards.
    """
    from benchmarks.ours import timed
    from models.machine import memory

    memory.release()
    trainer = _trainer(conf)
    times = [timed(trainer.step) for _ in range(WARM_UP + steps)]
    enqueued = []

    def pipelined() -> None:
        begin = time.perf_counter()
        for _ in range(steps):
            trainer.step()
        enqueued.append((time.perf_counter() - begin) / steps)

    found = {"seconds": median(times[WARM_UP:]), "pipelined": timed(pipelined) / steps}
    profile = cProfile.Profile()
    profile.runcall(pipelined)
    trainer.finish_step()
    loss = trainer.step().losses["total"].item()
    found |= {"enqueued": enqueued[0], "pool_mib": memory.pool_bytes() / MIB, "loss": float(loss)}
    return found | {"host": _functions(profile, steps)}


def _functions(profile: cProfile.Profile, steps: int) -> list[tuple[str, float, float]]:
    """The functions that take longest themselves: name, calls and ms of a step."""
    rows = [
        (f"{Path(file).name}:{name}", calls / steps, 1e3 * own / steps)
        for (file, _, name), (_, calls, own, *_) in pstats.Stats(profile).stats.items()
    ]
    return sorted(rows, key=lambda row: -row[2])[:FUNCTIONS]


def _traced(conf: ExperimentConfig, device: str) -> dict[str, Any]:
    """What the kernels of some steps take."""
    from benchmarks.ours import timed

    trainer = _trainer(conf)
    for _ in range(WARM_UP):
        timed(trainer.step)
    if device != "cuda":  # there is nothing to record
        return gpu_trace.summary([], 1)
    home = jittor_import.cuda_ready(0).home
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
