"""Measure the training step, alone or compared with the published code: `python benchmarks/bm_step.py --help`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

if __name__ == "__main__":  # run as a file: the packages lie beside benchmarks/, not in it
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import report
from benchmarks.flops import step_flops
from benchmarks.report import MIB, ROOT
from benchmarks.shapes import FULL, FULL_OUTSIDE, SMALL, Shape, parse_shape, shape_conf, write_job
from benchmarks.workers import Answer, Worker, alternate
from data.errors import UserError

OURS, PEER = "ours", "peer"
DESCRIPTION = """
Measures the training step on the CPU with the released networks, on a batch of the bundled scene: median of --steps
after --warm-up, peak resident memory of a fresh process, and the share of the rate of a plain matrix product that the
necessary work amounts to. With --peer the published PyTorch code takes the same batch, from the same weights, in turn
with ours. Prints a table and, last, one line of JSON. Leave the machine alone meanwhile.
"""


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; raises UserError for options that cannot be measured."""
    parser = argparse.ArgumentParser(prog="benchmarks/bm_step.py", description=DESCRIPTION, allow_abbrev=False)
    add, sizes = parser.add_argument, f"{SMALL}, {FULL}, {FULL_OUTSIDE}"
    add(
        "--shape",
        action="append",
        metavar="RxS+I[+O]",
        help=f"rays x samples + importance [+ outside]; default {sizes}",
    )
    add("--steps", type=int, default=5, help="measured steps (default 5)")
    add("--warm-up", type=int, default=2, help="warm-up steps (default 2)")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side (default: all cores)")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="another value in the conf")
    add("--peer", type=Path, metavar="FOLDER", help="a checkout of the published NeuS")
    add("--peer-python", type=Path, metavar="PYTHON", help="an interpreter that has PyTorch")
    add("--profile", action="store_true", help="also profile our step")
    given = parser.parse_args(arguments)
    for name, least in (("steps", 1), ("threads", 1), ("warm_up", 0)):
        if getattr(given, name) < least:
            raise UserError(f"--{name.replace('_', '-')} {getattr(given, name)}: must be at least {least}")
    if (given.peer is None) != (given.peer_python is None):
        raise UserError("--peer FOLDER and --peer-python PYTHON go together: a checkout, and the interpreter for it")
    if given.peer is not None and not (given.peer / "models" / "renderer.py").is_file():
        raise UserError(f"--peer {given.peer}: no models/renderer.py in it; give a checkout of the published NeuS")
    given.shapes = [parse_shape(text) for text in given.shape] if given.shape else [SMALL, FULL, FULL_OUTSIDE]
    return given


def measure(shape: Shape, given: argparse.Namespace, folder: Path) -> tuple[list[list[object]], dict[str, list[float]]]:
    """The rows of a shape, and the seconds of all steps of each side."""
    print(f"{shape}: {given.warm_up} + {given.steps} steps", file=sys.stderr, flush=True)
    threads, job, weights = {"OMP_NUM_THREADS": str(given.threads)}, folder / f"{shape}.npz", folder / "weights.npz"
    conf, program = shape_conf(shape, tuple(given.set)), [sys.executable, "-m", "benchmarks.ours"]
    write_job(job, conf)
    with Worker("matrix product", program, os.environ | threads, folder / "rate.log") as worker:
        rate = worker.ask("rate")["rate"]
    with contextlib.ExitStack() as stack:
        ours = Worker(OURS, [*program, str(job)], os.environ | threads, folder / "ours.log")
        workers = {OURS: stack.enter_context(ours)}
        if given.peer is not None:
            ours.ask("export", str(weights))
            # Not resolved: a link into a virtual environment is the environment.
            parts = (given.peer_python.absolute(), ROOT / "benchmarks/peer.py", given.peer.resolve(), job, weights)
            clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OMP_"))}
            workers[PEER] = stack.enter_context(Worker(PEER, [*map(str, parts)], clean | threads, folder / "peer.log"))
        answers = alternate(workers, "step", given.warm_up, given.steps)
        if given.profile:
            profile = ours.ask("profile")
            rows = [(phase, kind, 1e3 * s) for phase, kinds in profile["phases"].items() for kind, s in kinds.items()]
            rest = 1e3 * profile["seconds"] - sum(row[-1] for row in rows)
            rows.append(("between operations", "Python, graph, dispatch", rest))
            print(report.table((f"phase ({shape})", "operations", "ms"), rows), end="\n\n")
    rows = step_rows(str(shape), step_flops(conf.model, shape.rays), rate, answers, given.warm_up)
    return rows, {who: [answer["seconds"] for answer in each] for who, each in answers.items()}


def step_rows(
    shape: str, flops: int, rate: float, answers: dict[str, list[Answer]], warm_up: int
) -> list[list[object]]:
    """Name, ours, peer's, and their ratio; the very first losses show that both sides do the same."""
    seconds = {who: median(answer["seconds"] for answer in each[warm_up:]) for who, each in answers.items()}
    figures = {
        f"step {shape}, s": seconds,
        f"peak memory {shape}, MiB": {who: each[-1]["peak_bytes"] / MIB for who, each in answers.items()},
        f"share of matmul rate {shape}": {who: flops / each / rate for who, each in seconds.items()},
        f"first loss {shape}": {who: each[0]["loss"] for who, each in answers.items()},
        f"matmul rate, GFLOP/s ({shape})": {OURS: rate / 1e9},
    }
    return [
        [name, found[OURS], found.get(PEER), found[OURS] / found[PEER] if PEER in found else None]
        for name, found in figures.items()
    ]


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit status."""
    rows, seconds = [], {}
    try:
        given = parse_options(arguments)
        with tempfile.TemporaryDirectory() as folder:
            for shape in given.shapes:
                found, seconds[str(shape)] = measure(shape, given, Path(folder))
                rows += found
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report.table(("measure", "ours", "published", "ratio"), rows))
    print(json.dumps(report.provenance() | {"overrides": given.set, "rows": rows, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
