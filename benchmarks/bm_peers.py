"""Photogrammetry programs on the same photographs and cameras: `python -m benchmarks.bm_peers --scene FOLDER`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.peers import programs, results
from benchmarks.peers.files import SCENE, write_task
from benchmarks.peers.photographs import Task, make_task
from benchmarks.peers.programs import Program, Result
from benchmarks.peers.results import Row
from benchmarks.report import provenance
from data.errors import UserError
from data.io.files import write_result
from data.io.images import write_image
from data.io.streams import complain, say
from data.scenes.load import load_scene
from data.scenes.scene import require_view
from models.experiment import background
from models.methods.conf import ExperimentConfig, load_config

EXIT_USER_ERROR = 2
DESCRIPTION = """
Exports a scene as photographs of one pinhole camera in the unit-sphere frame, reconstructs them with this program and
with those that are given, one after the other, and measures the distances of held-out SfM points (every eighth) to each
surface. Writes peers.md, peers.json and peers.jpg into --out. Nobody gets masks; OpenMVS and MVE, which select
photographs by SfM points, get those that are not held out. pixelmap cannot use given poses. Processor seconds are those
of all commands with loading and writing; the compile cache of this program must be warm.
"""
CONF = Path("confs/fast.conf")
DATASET = "dataset."  # the keys that say what the photographs are
QUALITIES = ("low", "medium", "high")


@dataclass(frozen=True)
class Options:
    """The validated command line."""

    conf: ExperimentConfig
    conf_file: Path
    settings: tuple[str, ...]  # of this program's training
    points: Path | None
    openmvs: Path | None
    mve: Path | None
    pixelmap: Path | None
    quality: str
    view: int
    threads: int
    out: Path


def parse_options(arguments: Sequence[str]) -> Options:
    """Parse the command line; raises UserError for an invalid conf."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bm_peers", description=DESCRIPTION, allow_abbrev=False)
    add = parser.add_argument
    add("--scene", type=Path, required=True, metavar="FOLDER", help="a scene of any format")
    add("--points", type=Path, metavar="FILE", help="SfM points as .ply, unit-sphere frame (default: of the scene)")
    add("--conf", type=Path, default=CONF, metavar="FILE", help=f"conf of this program (default {CONF})")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="another value in the conf; repeatable")
    add("--openmvs", type=Path, metavar="FOLDER", help="folder of the programs of OpenMVS 2")
    add("--mve", type=Path, metavar="FOLDER", help="folder of the programs of MVE")
    add("--pixelmap", type=Path, metavar="PYTHON", help="interpreter that has pixelmap-multiview-python 0.1.1")
    add("--quality", choices=QUALITIES, default=QUALITIES[0], help="of pixelmap (default: its own, low)")
    add("--view", type=int, default=0, metavar="N", help="photograph of peers.jpg (default 0)")
    add("--threads", type=int, default=1, metavar="N", help="of every program (default 1)")
    add("--out", type=Path, default=Path("exp/bm_peers"), metavar="FOLDER", help="of all files (default exp/bm_peers)")
    given = parser.parse_args(arguments)
    conf = load_config(given.conf, given.scene.name, (f"{DATASET}data_dir={given.scene.absolute()}", *given.set))
    return Options(
        conf=conf,
        conf_file=given.conf.absolute(),
        settings=tuple(setting for setting in given.set if not setting.startswith(DATASET)),
        points=given.points,
        openmvs=given.openmvs,
        mve=given.mve,
        pixelmap=given.pixelmap,
        quality=given.quality,
        view=given.view,
        threads=given.threads,
        out=given.out.absolute(),
    )


def plan(options: Options, task: Task) -> list[tuple[Program, Path]]:
    """The programs and the folder of each; raises UserError if a given one is missing."""
    out = options.out
    planned = [(programs.ours(options.conf_file, options.settings, out, out / "ours"), out / "ours")]
    if options.openmvs is not None:
        folder = out / "openmvs"
        planned.append((programs.openmvs(options.openmvs, out, folder, options.threads), folder))
    if options.mve is not None:
        planned.append((programs.mve(options.mve, out), out / "mve"))
    if options.pixelmap is not None:
        program = programs.pixelmap(options.pixelmap, options.quality, out, task.scene.c2w)
        planned.append((program, out / "pixelmap"))
    return planned


def measure_all(options: Options, task: Task, planned: Sequence[tuple[Program, Path]]) -> list[Row]:
    """Run and measure all programs; the files are complete up to the last one that ended."""
    for folder in (options.out / SCENE, *(folder for _, folder in planned)):
        shutil.rmtree(folder, ignore_errors=True)
    write_task(options.out, task)
    about = {
        **provenance(),
        "load": os.getloadavg(),
        "threads": options.threads,
        "scene": options.conf.dataset.data_dir,
        "photographs": task.scene.n_views,
        "size": task.scene.size(0),
        "held_out_points": len(task.witness),
    }
    rows: list[Row] = []
    finished: list[tuple[str, Result]] = []
    for program, folder in planned:
        complain(f"{len(rows) + 1}/{len(planned)} {program.name}")
        row, result = results.run(program, folder, task, options.threads)
        rows.append(row)
        finished += [] if result is None else [(program.name, result)]
        content = json.dumps({**about, "rows": [asdict(each) for each in rows]}, indent=1)
        write_result(options.out / "peers.json", content.encode())
        write_result(options.out / "peers.md", f"{results.table(rows)}\n".encode())
        write_image(options.out / "peers.jpg", results.picture(task, options.view, finished))
    return rows


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit status."""
    try:
        options = parse_options(arguments)
        scene = load_scene(options.conf.dataset, background(options.conf))
        require_view(scene, options.view)
        task = make_task(scene, options.points)
        rows = measure_all(options, task, plan(options, task))
    except UserError as error:
        complain(f"error: {error}")
        return EXIT_USER_ERROR
    say(*results.table(rows).splitlines())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
