"""Quality of a model as a function of training time: `python -m benchmarks.bm_time_to_quality --help`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.report import ROOT, provenance, table
from data.errors import UserError
from data.io.files import write_result
from data.io.streams import complain, say
from models.conf import ExperimentConfig, load_config, to_hocon, validate

DESCRIPTION = """
Trains confs one after the other, each in a process of its own, and evaluates what they have learnt at some moments,
outside the clock. Prints one table of quality at times, means over the seeds, and last one line of JSON. Finished
trainings are kept in --out: started again, the command goes on with those that are missing. The cache of compiled
operations has to be warm for the times to be those of training; leave the machine alone.
"""
JOB, ROWS = "job.json", "rows.json"
FIGURES = ("seconds", "cpu_seconds", "peak_mb", "compiled", "chamfer", "f_score", "normal_consistency", "psnr")
FIGURES += ("psnr_mask", "points_median", "points_p90")


def jobs(given: argparse.Namespace) -> list[tuple[str, float, str, ExperimentConfig]]:
    """Name, length, folder and conf of all trainings, with compared ones next to each other.

    The overrides of a run take precedence over --set. Raises UserError for what cannot be used.
    """
    loaded: dict[str, ExperimentConfig] = {}
    for words in given.run:
        name, equals, path = words[0].partition("=")
        if not (name and equals and path) or name in loaded:
            raise UserError(f"--run {words[0]}: write it as NAME=CONF, such as fast=confs/fast.conf, each name once")
        loaded[name] = load_config(Path(path), given.case, (*given.set, *words[1:]))
    found = []
    for length in given.lengths:
        for seed in given.seeds or [None]:
            for name, conf in loaded.items():
                steps = max(1, round(length * conf.train.end_iter))
                seed_of_it = conf.train.seed if seed is None else seed
                folder = f"{name}_x{length:g}_seed{seed_of_it}"
                train = replace(conf.train, end_iter=steps, seed=seed_of_it, save_freq=0, val_freq=0, val_mesh_freq=0)
                general = replace(conf.general, base_exp_dir=str(given.out.absolute() / folder / "exp"), recording=())
                conf_of_it = replace(conf, train=train, general=general)
                validate(conf_of_it)
                found.append((name, length, folder, conf_of_it))
    return found


def measured(folder: Path, job: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a job, kept or made now; raises UserError if it fails, or if the folder holds another job."""
    text = json.dumps(job) + "\n"
    if (folder / ROWS).is_file() and (folder / JOB).read_text(encoding="utf-8") != text:
        raise UserError(f"{folder}: holds a training with other settings; choose another --out, or remove it")
    if not (folder / ROWS).is_file():
        write_result(folder / JOB, text.encode())
        with (folder / "output.log").open("wb") as log:
            command = [sys.executable, "-m", "benchmarks.quality_worker", str(folder.absolute())]
            status = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False).returncode
        if status or not (folder / ROWS).is_file():
            raise UserError(f"the training ended with status {status}; see {folder / 'output.log'}")
    return json.loads((folder / ROWS).read_text(encoding="utf-8"))


def means(rows: Sequence[dict[str, Any]]) -> list[list[object]]:
    """A row for each run, length and moment: figures are means over the seeds; None if one of them lacks it."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["run"], row["length"], row["step"]), []).append(row)
    lines: list[list[object]] = []
    for key, group in groups.items():
        values = [[row[name] for row in group] for name in FIGURES]
        lines.append([*key, len(group), *(None if None in each else float(fmean(each)) for each in values)])
    return lines


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bm_time_to_quality", description=DESCRIPTION, allow_abbrev=False
    )
    add = parser.add_argument
    add("--run", action="append", nargs="+", required=True, metavar=("NAME=CONF", "KEY=VALUE"), help="repeatable")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="another value in all confs; repeatable")
    add("--case", default="", help="what CASE_NAME and ${case} stand for in the confs")
    add("--lengths", type=_numbers(float), default=[1.0], metavar="X,...", help="times each conf's own train.end_iter")
    add("--seeds", type=_numbers(int), default=[], metavar="N,...", help="train.seed (default: the confs' own)")
    add("--at", type=_numbers(float), default=[0.1, 0.25, 0.5], metavar="SHARE,...", help="moments besides the end")
    add("--ground-truth", default="", metavar="MESH", help="in the unit-sphere frame (default: dataset.reference_mesh)")
    add("--points", default="", metavar="FILE", help="a .ply of points on the object, in the unit-sphere frame")
    add("--resolution", type=int, default=256, metavar="N", help="grid points of the mesh per axis (default 256)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default cpu")
    add("--out", type=Path, required=True, metavar="FOLDER", help="folder of the trainings and results")
    given = parser.parse_args(arguments)
    given_files = {"ground_truth": given.ground_truth, "points": given.points}
    references = {name: str(path and Path(path).absolute()) for name, path in given_files.items()}
    rows: list[dict[str, Any]] = []
    try:
        for run, length, name, conf in jobs(given):
            marks = sorted({max(1, round(share * conf.train.end_iter)) for share in (*given.at, 1.0)})
            about = {"resolution": given.resolution, "device": given.device, "marks": marks}
            complain(f"{name}: {conf.train.end_iter} steps")
            found = measured(given.out / name, {"conf": to_hocon(conf), **references, **about})
            rows += [{"run": run, "length": length, "seed": conf.train.seed} | row for row in found]
    except UserError as error:
        complain(f"error: {error}")
        return 2
    say(*table(("run", "length", "step", "seeds", *FIGURES), means(rows)).splitlines())
    say(json.dumps(provenance() | {"rows": rows}))
    return 0


def _numbers(kind: type) -> Any:
    """An argparse type: a comma-separated list of numbers."""
    return lambda text: [kind(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
