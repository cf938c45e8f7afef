"""The training step beside that of another checkout: `python -m benchmarks.bm_versions --help`."""

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

from benchmarks.report import ROOT, provenance, table
from benchmarks.workers import Worker, alternate
from data.errors import UserError
from data.io.streams import complain, say

WORKER = ROOT / "benchmarks" / "versions_worker.py"
OTHER_CACHE = "other"  # Jittor's cache of the other checkout, whose compiler flags may differ
DESCRIPTION = """
Trains the same scene with this checkout and with another one, in turns of --steps steps, and prints the ratio of their
step times (median of the rounds): this one by the other. Everything after -- is passed to both command lines.
"""


def compare(folders: dict[str, Path], given: argparse.Namespace, flags: Sequence[str]) -> dict[str, list[dict]]:
    """Wall-clock and CPU seconds of a step by round, of each checkout."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        workers = {}
        for name, folder in folders.items():
            place, environment = Path(scratch, name), {} if name == "own" else {"cache_name": OTHER_CACHE}
            own_flags = [*flags, "--set", f"general.base_exp_dir={place}"]
            command = [sys.executable, str(WORKER), str(given.warm_up), str(given.steps), *own_flags]
            log, label = place.with_suffix(".log"), f"the training of {folder}"
            workers[name] = stack.enter_context(Worker(label, command, os.environ | environment, log, folder))
        return alternate(workers, "round", 0, given.rounds)


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit status."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    usage = "%(prog)s [--rounds N] [--steps N] [--warm-up N] CHECKOUT -- FLAGS of --mode train"
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bm_versions", usage=usage, description=DESCRIPTION)
    parser.add_argument("other", type=Path, metavar="CHECKOUT", help="the other checkout of the project")
    parser.add_argument("--rounds", type=int, default=13, metavar="N", help="default 13")
    parser.add_argument("--steps", type=int, default=25, metavar="N", help="of a round (default 25)")
    parser.add_argument("--warm-up", type=int, default=150, metavar="N", help="steps before (default 150)")
    given = parser.parse_args(arguments[:end])
    try:
        if not (given.other / "exp_runner.py").is_file():
            raise UserError(f"{given.other}: is no checkout of the project: it has no exp_runner.py")
        if min(given.rounds, given.steps, given.warm_up) < 1:
            raise UserError("--rounds, --steps and --warm-up must be at least 1")
        found = compare({"own": ROOT, "other": given.other.resolve()}, given, arguments[end + 1 :])
    except UserError as error:
        complain(f"error: {error}")
        return 2
    rows = []
    for kind in ("wall", "processor"):
        own, other = ([answer[kind] for answer in found[name]] for name in ("own", "other"))
        ratio = median(a / b for a, b in zip(own, other, strict=True))
        rows.append((f"{kind}, ms", 1e3 * median(own), 1e3 * median(other), ratio))
    say(*table(("a step", "own", "other", "ratio"), rows).splitlines(), json.dumps(provenance() | found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
