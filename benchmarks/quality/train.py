"""One timed training, in a separate process: `python -m benchmarks.quality.train FOLDER`."""

from __future__ import annotations

import copy
import gc
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.quality import weights
from benchmarks.quality.job import CONF, weights_file
from benchmarks.serve import peak_bytes, serve
from data.scenes.load import load_scene
from data.scenes.scene import Scene
from models.experiment import background
from models.machine import backend, memory
from models.machine.backend import jt
from models.methods.block import ModelConfig
from models.methods.conf import ExperimentConfig, parse_config
from models.methods.protocol import Batch, Sampler
from models.methods.registry import build_model
from models.training.chunks import settled_chunk, training_chunk
from models.training.trainer import Trainer, generators

UNTIMED_STEPS = 2  # of a model that is thrown away: by then the operations are compiled, or loaded
MB = 10**6


class Clock:
    """Wall-clock and CPU seconds of all threads while it runs."""

    def __init__(self) -> None:
        self.seconds, self.cpu_seconds = 0.0, 0.0
        self._since: tuple[float, float] | None = None

    def go(self) -> None:
        """Start the clock."""
        self._since = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Stop the clock."""
        begin, cpu_begin = self._since
        self.seconds += time.perf_counter() - begin
        self.cpu_seconds += time.process_time() - cpu_begin


class Counted:
    """A sampler that counts the samples of its batches."""

    def __init__(self, sampler: Sampler, per_ray: int | None) -> None:
        """`per_ray`: samples of a ray whose batch does not tell them; None if nobody knows."""
        self._sampler, self._per_ray = sampler, per_ray
        self.rays, self.samples = 0, 0

    def next(self) -> Batch:
        """The next batch."""
        batch = self._sampler.next()
        offsets = getattr(batch, "offsets", None)  # of packed samples: the last one is how many there are
        self.rays += len(batch)
        if offsets is not None:
            self.samples += int(offsets[-1])
        elif self._per_ray is not None:
            self.samples += self._per_ray * len(batch)
        return batch


def samples_per_ray(conf: ModelConfig) -> int | None:
    """Samples per ray of a method with dense samples; None for other methods.

    A radiance field evaluates its coarse network at n_samples, and its fine one at these and n_importance more.
    """
    if (neus := getattr(conf, "neus_renderer", None)) is not None:
        return neus.n_samples + neus.n_importance + neus.n_outside
    if (nerf := getattr(conf, "nerf_renderer", None)) is not None:
        return 2 * nerf.n_samples + nerf.n_importance
    return None


def train(folder: Path, marks: list[int]) -> dict[str, Any]:
    """Train the conf of a folder to the last of `marks`; the weights at each are stored in the folder.

    Loading the scene, the first compilation and storing weights are not timed; depth maps from which a model starts
    are. `prepare_seconds` is the time to build the model and its sampler (for example a visual hull).
    """
    conf = parse_config((folder / CONF).read_text(encoding="utf-8"), str(folder / CONF))
    scene = load_scene(conf.dataset, background(conf))
    _warm_up(conf, scene)
    begin, clock = time.perf_counter(), Clock()
    trainer = build(conf, scene, clock)
    prepare_seconds = time.perf_counter() - begin - clock.seconds
    chunk = settled_chunk(conf.train, {})
    trainer.ray_chunk = training_chunk(trainer).chunk if chunk is None else chunk
    counted = trainer.sampler = Counted(trainer.sampler, samples_per_ray(conf.model))
    rows, began = [], time.time()
    clock.go()
    for step in range(1, marks[-1] + 1):
        trainer.step()
        if step in marks:
            trainer.settle()
            jt.sync_all(True)
            clock.stop()
            rows.append(_row(step, clock, counted) | {"compiled": compiled_since(began)})
            weights.save(weights_file(folder, step), trainer.result_model)
            clock.go()
    return {"prepare_seconds": prepare_seconds, "threads": backend.device_info().threads, "rows": rows}


def build(conf: ExperimentConfig, scene: Scene, clock: Clock) -> Trainer:
    """Model, sampler and trainer with the random numbers of `models.runner.Runner`; times the start of the model."""
    initial, pixels, jitter = generators(conf.train.seed)
    model = build_model(conf.model, conf.train, initial)
    sampler = model.sampler(scene, conf.train.batch_size, pixels)
    clock.go()
    model.begin()
    clock.stop()
    averaged = copy.deepcopy(model, {id(sampler): sampler}) if conf.train.ema_decay > 0 else None
    return Trainer(model, sampler, conf.train, jitter, averaged)


def _warm_up(conf: ExperimentConfig, scene: Scene) -> None:
    """Compile, or load, the operations of a step."""
    trainer = build(conf, scene, Clock())
    for _ in range(UNTIMED_STEPS):
        trainer.step()
    trainer.settle()
    del trainer
    gc.collect()
    memory.release()


def compiled_since(began: float) -> int:
    """How many libraries of this process are younger than `began`, seconds of the epoch: operations compiled since."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    libraries = {Path(line.split(maxsplit=5)[-1]) for line in lines if line.endswith(".so")}
    return sum(path.is_file() and path.stat().st_mtime >= began for path in libraries)


def _row(step: int, clock: Clock, counted: Counted) -> dict[str, Any]:
    """The resources used by a step and all before it."""
    return {
        "step": step,
        "seconds": clock.seconds,
        "cpu_seconds": clock.cpu_seconds,
        "rays": counted.rays,
        "samples": counted.samples or None,
        "peak_mb": peak_bytes() / MB,
    }


def main(arguments: list[str]) -> None:
    """Serve the folder of a run."""
    backend.select("cpu")
    folder = Path(arguments[0])
    serve({"train": lambda *marks: train(folder, [int(mark) for mark in marks])})


if __name__ == "__main__":
    main(sys.argv[1:])
