"""Steps of a conf with the simulated GPU, in a separate process; prints a line of JSON. See cuda_check.py."""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import median
from typing import Any

from benchmarks import cuda_check_answers as answers
from benchmarks import cuda_check_results as results
from benchmarks.shapes import FULL, ROOT, shape_conf
from models.machine import backend
from models.machine.cuda import trial

MOST_ENTRIES = 32  # of a batch: what is compiled does not depend on it
WARM_UP = 60  # steps before the counts are taken for the first time: the room for arrays on their way grows until then
GOING = 20  # and, where the host went on only after all was computed, until as many steps are under way again
LATE = 0.5  # share of end_iter at which all takes part that joins in later
LATE_STEPS = 110  # what is done every so many steps comes to pass: cells every 64, splats every 100
SCENE = ROOT / "data" / "demo"


@dataclass(frozen=True)
class Counts:
    """Counts of the simulated runtime."""

    launches: int
    allocations: int
    waits: int
    bytes_read: int

    def __sub__(self, earlier: Counts) -> Counts:
        """The difference of two counts."""
        return Counts(*(getattr(self, part.name) - getattr(earlier, part.name) for part in fields(Counts)))


class Gpu:
    """The simulated runtime loaded by Jittor."""

    def __init__(self, home: Any) -> None:
        library = ctypes.CDLL(str(home.folder / "lib64" / "libcudart.so"))
        self._read = [getattr(library, f"pretend_{part.name}") for part in fields(Counts)]
        for read in self._read:
            read.restype = ctypes.c_size_t

    def counts(self) -> Counts:
        """The counts since the start of the process."""
        return Counts(*(read() for read in self._read))


def main(arguments: Sequence[str]) -> None:
    """Run the steps and print the counts."""
    given = _parser().parse_args(arguments)
    backend.select("cuda")
    home = backend.cuda_ready(0).home
    if given.first:
        trial.failure(home, backend.try_cuda, 0)  # which compiles, as it does on a GPU
    trial.remember(home)  # it would be found that kernels do nothing
    from benchmarks.quality.train import Clock, build
    from data.scenes.load import load_scene
    from models.experiment import background
    from models.methods.conf import load_config
    from models.ops.kernel import NATIVE, REFERENCE, use

    answers.pretend()
    hosted = answers.OnHost()
    if given.examples:
        count = sum(1 for _ in results.examples())
        print(json.dumps(_compiled_for(hosted.names) | {"examples": count}))
        return
    cameras = "dataset.render_cameras_name=cameras_sphere.npz"
    settings = (f"dataset.data_dir={SCENE}", "dataset.test_dir=", cameras, *given.set)
    conf = shape_conf(FULL) if given.released else load_config(ROOT / given.conf, "check", settings)
    if not given.released and conf.train.batch_size > MOST_ENTRIES:
        conf = load_config(ROOT / given.conf, "check", (*settings, f"train.batch_size={MOST_ENTRIES}"))
    scene = load_scene(conf.dataset, background(conf))
    if given.points:
        scene = answers.with_points(scene)
    with use(REFERENCE if given.form == "plain" else NATIVE):
        trainer = build(conf, scene, Clock())
        found = _first(trainer) if given.first else _measure(trainer, given.steps, Gpu(home), hosted)
        if not (given.first or given.released):
            found |= _later(trainer, Gpu(home))
            found |= _with_results(trainer, conf, scene) if given.results else {}
            found |= _compiled_for(hosted.names)
    print(json.dumps(found))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/cuda_check_worker.py")
    parser.add_argument("--conf")
    parser.add_argument("--released", action="store_true")
    parser.add_argument("--form", choices=("native", "plain"), default="native")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--first", action="store_true", help="the first step alone, after the trial of a first start")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--results", action="store_true", help="render an image and extract meshes after the steps")
    parser.add_argument("--examples", action="store_true", help="only the doctor's example of each operation")
    parser.add_argument("--points", action="store_true", help="the scene has SfM points")
    return parser


def _first(trainer: Any) -> dict[str, Any]:
    """Compile and run the first step."""
    from benchmarks.quality.train import compiled_since

    began, spent = time.time(), _processor_seconds()
    _steps(trainer, 1)
    return {
        "compiled": compiled_since(began),
        "compile_seconds": _processor_seconds() - spent,
        "first_seconds": _processor_seconds(),
    }


def _measure(trainer: Any, steps: int, gpu: Gpu, hosted: answers.OnHost) -> dict[str, Any]:
    """Counts early and late, host time, kernels and memory of a step."""
    from models.machine.backend import jt
    from models.machine.memory import pool_bytes

    found = _first(trainer)
    _steps(trainer, WARM_UP)
    early = jt.liveness_info()
    hosted.is_looking = False
    times, counts = _steps(trainer, GOING + steps, gpu)
    hosted.is_looking = True
    late, counts = jt.liveness_info(), counts[GOING:]
    if trainer.guard.bad_steps:
        raise RuntimeError("steps were refused: their host time is not that of steps")
    with jt.profile_scope(0, 0) as report:
        _steps(trainer, 1)
    return found | {
        "vars": [early["lived_vars"], late["lived_vars"]],
        "ops": [early["lived_ops"], late["lived_ops"]],
        "host_ms": 1e3 * median(times[GOING:]),
        "allocations": sum(one.allocations for one in counts),
        "kernels": sum(one.launches for one in counts) / steps,
        "operations": sum(int(row[2]) for row in report[1:]),
        "pool_mib": pool_bytes() / 2**20,
        "waits": _of_steps(counts),
    }


def _later(trainer: Any, gpu: Gpu) -> dict[str, Any]:
    """Counts in the middle of the training; then a step in two parts, as on a GPU with little memory."""
    from models.machine.backend import jt

    trainer.finished_steps = int(LATE * trainer.conf.end_iter)
    _steps(trainer, WARM_UP)
    early = jt.liveness_info()
    _, counts = _steps(trainer, LATE_STEPS, gpu)
    late = jt.liveness_info()
    trainer.ray_chunk = -(-trainer.conf.batch_size // 2)
    _steps(trainer, 1)
    living = {f"late_{name}": [early[f"lived_{name}"], late[f"lived_{name}"]] for name in ("vars", "ops")}
    return living | {"late_waits": _of_steps(counts)}


def _with_results(trainer: Any, conf: Any, scene: Any) -> dict[str, int]:
    """The number of additional operations used by an image and meshes."""
    before = len(answers.operations())
    results.make(trainer, conf, scene)
    return {"of_results": len(answers.operations()) - before}


def _of_steps(counts: list[Counts]) -> dict[str, float]:
    """Waits and bytes read back per step: the median, and the maximum over steps with additional work."""
    times, read = [one.waits for one in counts], [one.bytes_read for one in counts]
    return {"median": median(times), "most": max(times), "bytes": median(read), "most_bytes": max(read)}


def _compiled_for(hosted: set[str]) -> dict[str, Any]:
    """The number of loaded operations, their capabilities, and those that wrongly run on the host."""
    codes = {library.name: answers.capabilities(library) for library in answers.operations()}
    on_gpu = [found for found in codes.values() if found]
    on_host = {name for name, found in codes.items() if not found}
    return {
        "on_gpu": len(on_gpu),
        "codes": sorted(set.intersection(*on_gpu)) if on_gpu else [],
        "on_host": sorted(on_host - hosted),
        "meant_for_host": len(on_host & hosted),
    }


def _steps(trainer: Any, count: int, gpu: Gpu | None = None) -> tuple[list[float], list[Counts]]:
    """Processor seconds of each step, which on a machine that does other things too tell more than the clock's.

    Beside them each step's counts, where there is a `GPU` to ask. One step follows the other as in the training loop:
    only the end of all is waited for.
    """
    from models.machine.backend import jt

    times, counts, output = [], [], None
    for _ in range(count):
        begin, before = time.process_time(), gpu and gpu.counts()
        output = trainer.step()  # kept until the next one is there, as the loop does
        times.append(time.process_time() - begin)
        if gpu:
            counts.append(gpu.counts() - before)
    del output
    trainer.settle()
    jt.sync_all(True)
    return times, counts


def _processor_seconds() -> float:
    """CPU seconds of this process and of its ended children."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))


if __name__ == "__main__":
    main(sys.argv[1:])
