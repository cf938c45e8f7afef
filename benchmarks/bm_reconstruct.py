"""Time of every phase from photographs to a mesh: `python -m benchmarks.bm_reconstruct PHOTOGRAPHS`.

Runs `--mode reconstruct` several times, each in a folder of its own, and prints the medians. The compile cache must be
warm, or the phase `compiling` is that of a first start. The last line of the output is JSON: commit, machine, load
average, and the metrics, phases and peak memory of every run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import MIB, ROOT, provenance, table
from data.errors import UserError
from data.io.streams import complain, say
from models.results.metric_tables import JSON_FILE, read_json

KINDS = ("wall", "processor")  # seconds of a phase
METRICS = ("phases", "psnr", "points_median", "points_p90", "points_missing", "triangles", "step")


def reconstruct(photographs: Path, folder: Path, flags: Sequence[str]) -> dict[str, Any]:
    """Run `--mode reconstruct` with all its files in `folder`, which is replaced; raises UserError if it fails.

    Returns METRICS, and the peak memory of the largest process.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, str(ROOT / "exp_runner.py"), "--mode", "reconstruct", "--images", str(photographs)]
    for value in (f"dataset.data_dir={folder / 'scene'}", f"general.base_exp_dir={folder / 'exp'}"):
        command += ["--set", value]
    with open(folder / "output.log", "wb") as log:
        process = subprocess.Popen([*command, *flags], stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise UserError(f"--mode reconstruct ended with status {process.returncode}; see {folder / 'output.log'}")
    found = read_json(folder / "exp" / "result" / JSON_FILE)
    return {name: found.get(name) for name in METRICS} | {"peak_mib": usage.ru_maxrss * 1024 / MIB}


def medians(runs: Sequence[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """Name and median seconds, wall-clock and of processors, of each phase and of all; a phase may be missing."""
    phases = [
        run["phases"] | {"all": {kind: sum(one[kind] for one in run["phases"].values()) for kind in KINDS}}
        for run in runs
    ]
    names = [name for name in dict.fromkeys(name for each in phases for name in each) if name != "all"]
    return [
        (name, *(median(each.get(name, {}).get(kind, 0.0) for each in phases) for kind in KINDS))
        for name in (*names, "all")
    ]


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    usage = "%(prog)s [--runs N] [--out FOLDER] PHOTOGRAPHS [-- FLAGS of --mode reconstruct]"
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bm_reconstruct", usage=usage, description=__doc__)
    parser.add_argument("photographs", type=Path, help="folder of photographs, or a video")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="reconstructions (default 3)")
    parser.add_argument("--out", type=Path, default=Path("exp/bm_reconstruct"), help="folder of the runs")
    given = parser.parse_args(arguments[:end])
    folders = [given.out.absolute() / str(number) for number in range(given.runs)]
    try:
        runs = [reconstruct(given.photographs.absolute(), folder, arguments[end + 1 :]) for folder in folders]
    except UserError as error:
        complain(f"error: {error}")
        return 2
    say(*table(("phase", "seconds", "processor seconds"), medians(runs)).splitlines())
    say(json.dumps({**provenance(), "runs": runs}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
