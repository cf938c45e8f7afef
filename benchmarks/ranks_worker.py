"""One rank of a measurement of benchmarks.bm_ranks: steps of a conf on a scene, timed or written down.

`mpirun -n N python -m benchmarks.ranks_worker TASK CONF OUT STEPS [KEY=VALUE ...]`, TASK one of `steps` and `times`.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

from data.scenes.load import load_scene
from models.experiment import background
from models.machine.backend import jt
from models.machine.ranks.ranks import Ranks, joined
from models.machine.ranks.started import takes_part
from models.methods.conf import load_config
from models.methods.registry import build_model
from models.training.chunks import settled_chunk
from models.training.trainer import Trainer, generators

# Of /proc/<process>/smaps_rollup: what it has, with its part of pages that several have, and of no file.
KEPT = {"resident": "Rss", "share": "Pss", "data": "Anonymous"}


def trainer_of(conf_path: str, settings: list[str], ranks: Ranks) -> Trainer:
    """A trainer as the command line makes it, with a batch in one piece unless `train.ray_chunk` is a number."""
    conf = load_config(conf_path, "demo", settings)
    initial, pixels, jitter = generators(conf.train.seed)
    model = build_model(conf.model, conf.train, initial)
    sampler = model.sampler(load_scene(conf.dataset, background(conf)), conf.train.batch_size, pixels)
    trainer = Trainer(model, sampler, conf.train, jitter, ranks=ranks)
    trainer.ray_chunk = settled_chunk(conf.train, {}) or conf.train.batch_size
    return trainer


def steps(trainer: Trainer, count: int) -> dict[str, np.ndarray]:
    """The losses of several steps and all weights after them."""
    losses = [float(trainer.step().found.losses["total"].item()) for _ in range(count)]
    trainer.settle()
    return {"losses": np.array(losses)} | {name: v.numpy() for name, v in trainer.optimizer.named_parameters.items()}


def kept() -> dict[str, np.ndarray]:
    """Memory of the process now, by the names of KEPT."""
    lines = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    found = {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines}
    return {name: np.array(found[entry]) for name, entry in KEPT.items()}


def times(trainer: Trainer, count: int) -> dict[str, np.ndarray]:
    """Seconds of each of some steps, by the clock and of the processor, and of the sums that a step makes; peak memory.

    The sleep in which a rank waits for the others takes no processor seconds.
    """
    seconds, busy, sums = [], [], []
    for _ in range(2):
        trainer.step()
    jt.sync_all(True)
    for _ in range(count):
        trainer.ranks.barrier()
        begin, work = time.perf_counter(), time.process_time()
        trainer.step()
        jt.sync_all(True)
        seconds.append(time.perf_counter() - begin)
        busy.append(time.process_time() - work)
    buffer = np.ones(sum(value.numel() for value in trainer.optimizer.parameters), np.float32)
    for _ in range(count):
        trainer.ranks.barrier()
        begin = time.perf_counter()
        trainer.ranks.add(buffer)
        sums.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    own = kept()
    slowest = max(trainer.ranks.everyone(float(np.median(busy))))
    return own | {
        "seconds": np.array(seconds),
        "busy": np.array(slowest),
        "sums": np.array(sums),
        "peak": np.array(peak),
        "bytes": np.array(buffer.nbytes),
    }


if __name__ == "__main__":
    takes_part(is_shared=True, asked={})
    task, conf_path, out, count, *settings = sys.argv[1:]
    ranks = joined()
    trainer = trainer_of(conf_path, settings, ranks)
    found = {"steps": steps, "times": times}[task](trainer, int(count))
    if ranks.is_first:
        np.savez(Path(out), **found)
    ranks.close()
    os._exit(0)
