"""The training step beside that of another checkout: `python -m benchmarks.bm_versions --help`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.report import provenance
from benchmarks.workers import Answer, Worker, alternate
from data.errors import UserError
from data.io.streams import complain, say

ROOT = Path(__file__).resolve().parents[1]
WORKER = ROOT / "benchmarks" / "versions_worker.py"
OTHER_CACHE = "other"  # Jittor's cache of the other checkout, whose compiler flags may differ
EXIT_USER_ERROR = 2
DESCRIPTION = """
Trains the same scene with this checkout and with another one, in turns of --steps steps, and prints the ratio of their
step times (median of the rounds): this one by the other. Everything after -- is passed to both command lines.
"""


def compare(other: Path, given: argparse.Namespace) -> tuple[list[Answer], list[Answer]]:
    """Wall-clock and CPU seconds of a step by round, of this checkout and of the other one."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        workers = {}
        for name, folder, environment in (("own", ROOT, {}), ("other", other, {"cache_name": OTHER_CACHE})):
            place, label = Path(scratch, name), f"the training of {folder}"
            flags = [*given.arguments, "--set", f"general.base_exp_dir={place}"]
            command = [sys.executable, str(WORKER), str(given.warm_up), str(given.steps), *flags]
            worker = Worker(label, command, os.environ | environment, place.with_suffix(".log"), folder)
            workers[name] = stack.enter_context(worker)
        answers = alternate(workers, "round", 0, given.rounds)
        return answers["own"], answers["other"]


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit status."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bm_versions",
        usage="%(prog)s [--rounds N] [--steps N] [--warm-up N] CHECKOUT -- FLAGS of --mode train",
        description=DESCRIPTION,
        allow_abbrev=False,
    )
    parser.add_argument("other", type=Path, metavar="CHECKOUT", help="the other checkout of the project")
    parser.add_argument("--rounds", type=int, default=13, metavar="N", help="default 13")
    parser.add_argument("--steps", type=int, default=25, metavar="N", help="of a round (default 25)")
    parser.add_argument("--warm-up", type=int, default=150, metavar="N", help="steps before (default 150)")
    given = parser.parse_args(arguments[:end], argparse.Namespace(arguments=arguments[end + 1 :]))
    try:
        if not (given.other / "exp_runner.py").is_file():
            raise UserError(f"{given.other}: is no checkout of the project: it has no exp_runner.py")
        if min(given.rounds, given.steps, given.warm_up) < 1:
            raise UserError("--rounds, --steps and --warm-up must be at least 1")
        own, peer = compare(given.other.resolve(), given)
    except UserError as error:
        complain(f"error: {error}")
        return EXIT_USER_ERROR
    say(*report(own, peer), str(provenance()))
    return 0


def report(own: Sequence[Answer], other: Sequence[Answer]) -> list[str]:
    """Two lines: medians of the CPU time of a step, and of the ratios, with all ratios."""
    ours, theirs = (1000 * median(each["processor"] for each in side) for side in (own, other))
    wall, processor = ([a[kind] / b[kind] for a, b in zip(own, other, strict=True)] for kind in ("wall", "processor"))
    ratios = " ".join(f"{ratio:.3f}" for ratio in processor)
    return [
        f"CPU time of a step: {ours:.2f} ms, the other {theirs:.2f} ms",
        f"ratio: {median(processor):.3f} of CPU time, {median(wall):.3f} of wall-clock time; CPU by round: {ratios}",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
