"""Measure the training step, alone or compared with the published code: `python benchmarks/bm_step.py --help`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

if __name__ == "__main__":  # run as a file: the packages lie beside benchmarks/, not in it
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import report, startup
from benchmarks.flops import step_flops
from benchmarks.report import COLD_START_SECONDS, IMAGE_RATIO, MATMUL, OURS, PEER, PLAIN, START_SECONDS, Row
from benchmarks.shapes import FULL, FULL_OUTSIDE, ROOT, SMALL, Shape, make_job, parse_shape, shape_conf, write_job
from benchmarks.workers import Alone, Answer, Answers, Worker, alternate
from data.errors import UserError
from models.methods.neus.conf import NeuSConfig

WARM_START_REPEATS = 3
EXIT_USER_ERROR = 2
DESCRIPTION = """
Measures the training step on the CPU with the released networks, on a batch of the bundled scene: median of --steps
after --warm-up, peak resident memory of a fresh process, and the share of the rate of a plain matrix product that the
necessary work amounts to. With --peer the published PyTorch code takes the same batch, from the same weights, in turn
with ours. Prints a table and, last, one line of JSON. Leave the machine alone meanwhile.
"""


@dataclass(frozen=True)
class Options:
    """The validated command line."""

    shapes: tuple[Shape, ...]
    steps: int
    warm_up: int
    threads: int
    overrides: tuple[str, ...]
    peer: Path | None
    peer_python: Path | None
    with_image: bool
    with_start: bool
    with_cold_start: bool
    with_profile: bool
    with_plain: bool


def parse_options(arguments: Sequence[str]) -> Options:
    """Parse the command line; raises UserError for options that cannot be measured."""
    given = _parser().parse_args(arguments)
    for name in ("steps", "threads"):
        if getattr(given, name) < 1:
            raise UserError(f"--{name} {getattr(given, name)}: must be at least 1")
    if given.warm_up < 0:
        raise UserError(f"--warm-up {given.warm_up}: must be at least 0")
    if (given.peer is None) != (given.peer_python is None):
        raise UserError("--peer FOLDER and --peer-python PYTHON go together: a checkout, and the interpreter for it")
    if given.peer is not None and not (given.peer / "models" / "renderer.py").is_file():
        raise UserError(f"--peer {given.peer}: no models/renderer.py in it; give a checkout of the published NeuS")
    shapes = tuple(parse_shape(text) for text in given.shape) if given.shape else (SMALL, FULL, FULL_OUTSIDE)
    return Options(
        shapes=shapes,
        steps=given.steps,
        warm_up=given.warm_up,
        threads=given.threads,
        overrides=tuple(given.set),
        peer=given.peer and given.peer.resolve(),
        peer_python=given.peer_python and given.peer_python.absolute(),  # not resolved: a link into a venv is the venv
        with_image=given.image,
        with_start=given.start,
        with_cold_start=given.cold_start,
        with_profile=given.profile,
        with_plain=given.plain,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/bm_step.py", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument(
        "--shape",
        action="append",
        metavar="RxS+I[+O]",
        help=f"rays x samples + importance [+ outside], repeatable; default {SMALL}, {FULL}, {FULL_OUTSIDE}",
    )
    parser.add_argument("--steps", type=int, default=5, help="measured steps (default 5)")
    parser.add_argument("--warm-up", type=int, default=2, help="warm-up steps (default 2)")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--threads", type=int, default=cores, help=f"of each side (default: all cores, {cores})")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another value in the conf")
    parser.add_argument("--peer", type=Path, metavar="FOLDER", help="a checkout of the published NeuS")
    parser.add_argument("--peer-python", type=Path, metavar="PYTHON", help="an interpreter that has PyTorch")
    parser.add_argument("--image", action="store_true", help=f"also a 200x200 image at {FULL}; the peer takes minutes")
    parser.add_argument("--start", action="store_true", help="also the start up to the first step")
    parser.add_argument("--cold-start", action="store_true", help="also a first start; minutes")
    parser.add_argument("--profile", action="store_true", help="also profile our step")
    parser.add_argument("--plain", action="store_true", help="also our step without native operations")
    return parser


def measure(options: Options) -> dict[str, object]:
    """All measurements, printed as they are made; returns the values of the JSON line."""
    rows: list[Row] = []
    about: dict[str, object] = {"load_average": os.getloadavg()[0]}  # of the minute before: what else went on
    samples: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for shape in options.shapes:
            model, answers, facts = _measure_shape(shape, options, folder)
            rows += report.step_rows(shape, step_flops(model, shape.rays).total, answers, options.warm_up)
            about |= facts
            samples[str(shape)] = {who: [answer["seconds"] for answer in each] for who, each in answers.items()}
        if options.with_image:
            rows += _measure_image(options, folder)
    rows += _measure_starts(options)
    print(report.table(rows))
    figures = [
        {"name": row.name, "ours": row.ours, "peer": row.peer, "ratio": row.ratio, "is_reached": row.is_reached}
        for row in rows
    ]
    settings = {"steps": options.steps, "warm_up": options.warm_up, "overrides": options.overrides}
    return report.provenance() | about | settings | {"rows": figures, "seconds": samples}


def _measure_shape(
    shape: Shape, options: Options, folder: Path
) -> tuple[NeuSConfig, dict[str, list[Answer]], dict[str, object]]:
    """The network sizes, the alternating measurements of all sides, and the descriptions of the sides."""
    _say(f"{shape}: {options.warm_up} + {options.steps} steps")
    with contextlib.ExitStack() as stack:
        model, workers = _start(stack, shape, options, folder)
        if options.with_plain:
            job = str(_job_path(folder, shape))
            workers[PLAIN] = stack.enter_context(_ours(options, PLAIN, folder, job, PLAIN))
        product = stack.enter_context(_ours(options, MATMUL, folder))
        about = {who: workers[who].ask("about")["about"] for who in (OURS, PEER) if who in workers}
        sides: dict[str, Answers] = {**workers, MATMUL: Alone(product, list(workers.values()))}
        answers = alternate(sides, "step", options.warm_up, options.steps)
        if options.with_profile:
            profile = workers[OURS].ask("profile")
            print(report.profile_table(shape, profile["seconds"], profile["phases"]), end="\n\n")
    return model, answers, about


def _start(
    stack: contextlib.ExitStack, shape: Shape, options: Options, folder: Path
) -> tuple[NeuSConfig, dict[str, Worker]]:
    """Start our process, and that of the peer with our weights if there is one, on the same job."""
    conf = shape_conf(shape, options.overrides)
    job, weights = _job_path(folder, shape), folder / f"{shape}_weights.npz"
    write_job(job, make_job(conf))
    workers = {OURS: stack.enter_context(_ours(options, OURS, folder, str(job)))}
    if options.peer is not None:
        workers[OURS].ask("export", str(weights))
        workers[PEER] = stack.enter_context(_peer(options, job, weights))
    return conf.model, workers


def _job_path(folder: Path, shape: Shape) -> Path:
    """The file of the job of a shape."""
    return folder / f"{shape}.npz"


def _ours(options: Options, label: str, folder: Path, *arguments: str) -> Worker:
    """Start a process of this project; its log is written to `folder`."""
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    return Worker(label, [sys.executable, "-m", "benchmarks.ours", *arguments], environment, folder / label)


def _peer(options: Options, job: Path, weights: Path) -> Worker:
    """Start a process of the published code, without environment variables that refer to our packages or settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OMP_"))}
    program = [options.peer_python, ROOT / "benchmarks" / "peer.py", options.peer, job, weights]
    environment["OMP_NUM_THREADS"] = str(options.threads)
    return Worker(PEER, [str(part) for part in program], environment, job.parent / PEER)


def _measure_image(options: Options, folder: Path) -> list[Row]:
    """Time a validation image of each side once, after an unmeasured one of ours; also the difference of the images."""
    _say("image")
    with contextlib.ExitStack() as stack:
        _, workers = _start(stack, FULL, options, folder)
        workers[OURS].ask("image", str(folder / "warm_up.npy"))
        seconds, pictures = {}, {}
        for who, worker in workers.items():
            path = folder / f"{who}.npy"
            seconds[who] = worker.ask("image", str(path))["seconds"]
            pictures[who] = np.load(path)
    rows = [Row("image 200x200, s", seconds[OURS], seconds.get(PEER), IMAGE_RATIO)]
    if PEER in pictures:
        rows.append(Row("image: largest difference", float(np.abs(pictures[OURS] - pictures[PEER]).max())))
    return rows


def _measure_starts(options: Options) -> list[Row]:
    """Measure warm and cold start, if requested."""
    rows = []
    if options.with_start:
        _say("start")
        times = [startup.first_step(os.environ) for _ in range(1 + WARM_START_REPEATS)]
        rows.append(
            Row("warm start to first step, s", median(times[1:]), bound=START_SECONDS)
        )  # the first may still compile
    if options.with_cold_start:
        _say("cold start")
        cold = startup.cold_start()
        rows += [
            Row("cold start to first step, s", cold.seconds, bound=COLD_START_SECONDS),
            Row("compiled files of Jittor itself", cold.core_objects),
            Row("compiled operations", cold.kernels),
        ]
    return rows


def _say(text: str) -> None:
    """Print progress on stderr, separate from the results on stdout."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit status."""
    try:
        print(json.dumps(measure(parse_options(arguments))))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
