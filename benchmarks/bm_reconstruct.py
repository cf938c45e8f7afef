"""The time of each phase from photographs to a mesh: `python -m benchmarks.bm_reconstruct PHOTOGRAPHS`.

Runs `--mode reconstruct` several times, each in a folder of its own, and prints the medians. The compile cache must be
warm, or the phase `compiling` is that of a first start. The last line of the output is JSON: commit, machine, load
average, and the times and metrics of every run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.report import MIB, provenance
from benchmarks.shapes import ROOT
from data.errors import UserError
from data.io.streams import complain, say
from models.evaluation.metric_files import JSON_FILE, read_json

EXIT_USER_ERROR = 2
METRICS = ("psnr", "points_median", "points_p90", "points_missing", "triangles", "step")
KIBIBYTE = 1024  # unit of ru_maxrss on Linux


@dataclass(frozen=True)
class Measured:
    """A reconstruction: the times of its phases, its peak memory and its metrics."""

    phases: Mapping[str, Mapping[str, float]]  # seconds, `wall` and `processor`
    peak_mib: float  # of the largest of its processes
    metrics: Mapping[str, float | None]


def reconstruct(photographs: Path, folder: Path, flags: Sequence[str]) -> Measured:
    """Run `--mode reconstruct` with all its files in `folder`, which is replaced; raises UserError if it fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = (f"dataset.data_dir={folder / 'scene'}", f"general.base_exp_dir={folder / 'exp'}")
    command = [sys.executable, str(ROOT / "exp_runner.py"), "--mode", "reconstruct", "--images", str(photographs)]
    command += [word for value in settings for word in ("--set", value)]
    with open(folder / "output.log", "wb") as log:
        process = subprocess.Popen([*command, *flags], stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise UserError(f"--mode reconstruct ended with status {process.returncode}; see {folder / 'output.log'}")
    figures = read_json(folder / "exp" / "result" / JSON_FILE)
    metrics = {name: figures.get(name) for name in METRICS}
    return Measured(figures["phases"], usage.ru_maxrss * KIBIBYTE / MIB, metrics)


def table(runs: Sequence[Measured]) -> str:
    """The medians of the runs as a Markdown table."""
    names = list(dict.fromkeys(name for run in runs for name in run.phases))
    totals = [{key: sum(spent[key] for spent in run.phases.values()) for key in ("wall", "processor")} for run in runs]
    columns = [(name, [run.phases.get(name, {}) for run in runs]) for name in names] + [("all", totals)]
    lines = ["| phase | seconds | processor seconds |", "|---|---|---|"]
    for name, spent in columns:
        wall, processor = (median(one.get(key, 0.0) for one in spent) for key in ("wall", "processor"))
        lines.append(f"| {name} | {wall:.1f} | {processor:.1f} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    flags = arguments[end + 1 :]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bm_reconstruct",
        usage="%(prog)s [--runs N] [--out FOLDER] PHOTOGRAPHS [-- FLAGS of --mode reconstruct]",
        description=__doc__.split("\n")[0],
    )
    parser.add_argument("photographs", type=Path, help="folder of photographs, or a video")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="reconstructions (default 3)")
    parser.add_argument("--out", type=Path, default=Path("exp/bm_reconstruct"), help="folder of the runs")
    given = parser.parse_args(arguments[:end])
    before = os.getloadavg()
    try:
        runs = [
            reconstruct(given.photographs.absolute(), given.out.absolute() / str(number), flags)
            for number in range(given.runs)
        ]
    except UserError as error:
        complain(f"error: {error}")
        return EXIT_USER_ERROR
    say(*table(runs).splitlines(), json.dumps({**provenance(), "load": before, "runs": [asdict(run) for run in runs]}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
