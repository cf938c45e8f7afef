"""Quality of a model as a function of training time: `python -m benchmarks.bm_time_to_quality --help`."""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality import rows as figures
from benchmarks.quality import table
from benchmarks.quality.job import Measurement
from benchmarks.quality.rows import Row
from benchmarks.quality.runs import Run, finished, make_runs, marks, measure, parse_spec, train
from benchmarks.quality.surfaces import read_points
from data.errors import UserError
from data.io.streams import complain
from data.scenes.load import load_held_out, load_scene
from models.evaluation.mesh_distance import read_mesh
from models.evaluation.surface_metrics import SAMPLES
from models.experiment import background

EXIT_USER_ERROR = 2
DESCRIPTION = """
Trains confs one after the other, each in a process of its own, and takes figures of what they have learnt at some
moments, outside the clock. Writes runs.csv, a row for each moment, and curves.png into --out, and prints the figures at
equal time. A training that was finished is kept there: started again, the command goes on with those that are missing.
The cache of compiled operations has to be warm for the times to be those of training; leave the machine alone.
"""
AT = (0.1, 0.25, 0.5, 1.0)
THRESHOLD = 0.005  # of the F-score: between the errors of the first minute and those of a finished training
RESOLUTION = 256  # a cell is 0.008 wide, and marching cubes err by far less on a smooth surface
LEVEL = 2  # a quarter of the pixels, which tell as much of a mean over many views


@dataclass(frozen=True)
class Options:
    """The validated command line."""

    runs: tuple[Run, ...]
    shares: tuple[float, ...]
    asked: Measurement
    curves: tuple[Row, ...]  # measured elsewhere
    out: Path


def parse_options(arguments: Sequence[str]) -> Options:
    """Parse the command line; raises UserError for an invalid conf, scene or reference file."""
    given = _parser().parse_args(arguments)
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("the Python package matplotlib is missing; run `pip install -r requirements-dev.txt`")
    specs = [parse_spec(words) for words in given.run]
    curves = [_curve(text) for text in given.curve]
    for path, read in ((given.ground_truth, read_mesh), (given.points, read_points)):
        if path is not None:
            read(path)
    runs = make_runs(specs, given.case, given.set, given.lengths, given.seeds)
    _require_scenes(runs, reads_reference=given.ground_truth is None)
    asked = Measurement(
        ground_truth=_absolute(given.ground_truth),
        points=_absolute(given.points),
        threshold=given.threshold,
        samples=given.samples,
        resolution=given.resolution,
        level=given.level,
        views=given.views,
    )
    rows = tuple(row for curve in curves for row in curve)
    return Options(tuple(runs), tuple(given.at), asked, rows, given.out.absolute())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bm_time_to_quality", description=DESCRIPTION, allow_abbrev=False
    )
    add = parser.add_argument
    add(
        "--run",
        action="append",
        nargs="+",
        required=True,
        metavar=("NAME=CONF", "KEY=VALUE"),
        help="a conf to train, with other values than it has; repeatable, the first is what others are compared with",
    )
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="another value in all confs; repeatable")
    add("--case", default="", help="what CASE_NAME and ${case} stand for in the confs")
    add(
        "--lengths",
        type=_list(float, 0.0),
        default=(1.0,),
        metavar="X,...",
        help="times each conf's own train.end_iter, each a training of its own, since schedules follow it (default 1)",
    )
    add("--seeds", type=_list(int, -1), default=(), metavar="N,...", help="train.seed (default: the confs' own)")
    add(
        "--at",
        type=_list(float, 0.0, 1.0),
        default=AT,
        metavar="SHARE,...",
        help="the moments, as shares of the training; its end is always one (default 0.1,0.25,0.5,1)",
    )
    _add_measures(parser)
    return parser


def _add_measures(parser: argparse.ArgumentParser) -> None:
    """Add the flags for metrics and outputs."""
    add = parser.add_argument
    add("--ground-truth", type=Path, metavar="MESH", help="in the unit-sphere frame (default: dataset.reference_mesh)")
    add("--points", type=Path, metavar="FILE", help="a .ply of points on the object, in the unit-sphere frame")
    add(
        "--threshold",
        type=_number(float, 0.0),
        default=THRESHOLD,
        metavar="D",
        help=f"of the F-score, in radii of the unit sphere (default {THRESHOLD})",
    )
    add(
        "--samples",
        type=_number(int, 0),
        default=SAMPLES,
        metavar="N",
        help=f"points on either surface for Chamfer distance, F-score and normals (default {SAMPLES})",
    )
    add(
        "--resolution",
        type=_number(int, 1),
        default=RESOLUTION,
        metavar="N",
        help=f"grid points of the mesh per axis (default {RESOLUTION})",
    )
    add(
        "--level",
        type=_number(int, 0),
        default=LEVEL,
        metavar="N",
        help=f"held-out views are rendered at one N-th of their width and height (default {LEVEL})",
    )
    add("--views", type=_number(int, -1), default=0, metavar="N", help="at most N held-out views (default 0: all)")
    add(
        "--curve",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a CSV with columns of runs.csv (seconds, and figures) that was measured elsewhere; repeatable",
    )
    add("--out", type=Path, required=True, metavar="FOLDER", help="folder of the trainings and results")


def _number(kind: type, above: float, most: float = math.inf) -> Callable[[str], float]:
    """An argparse type: a number above `above` and at most `most`."""

    def read(text: str) -> float:
        value = kind(text)
        if not above < value <= most or not math.isfinite(value):
            raise ValueError(text)
        return value

    read.__name__ = f"number above {above:g}" + (f" and at most {most:g}" if most < math.inf else "")
    return read


def _list(kind: type, above: float, most: float = math.inf) -> Callable[[str], tuple[float, ...]]:
    """An argparse type: a comma-separated list of numbers; returns them sorted and without duplicates."""
    one = _number(kind, above, most)

    def read(text: str) -> tuple[float, ...]:
        return tuple(sorted({one(part) for part in text.split(",")}))

    read.__name__ = f"list of a {one.__name__}"
    return read


def _curve(text: str) -> list[Row]:
    """NAME=FILE of --curve."""
    name, equals, path = text.partition("=")
    if not name or not equals or not path:
        raise UserError(f"--curve {text}: write it as NAME=FILE, such as published=published.csv")
    return figures.read_curve(name, Path(path))


def _absolute(path: Path | None) -> str:
    return "" if path is None else str(path.absolute())


def _require_scenes(runs: Sequence[Run], reads_reference: bool) -> None:
    """Raises UserError if one of the scenes cannot be used, before any training starts."""
    seen = []
    for conf in (run.conf for run in runs):
        if (conf.dataset, background(conf)) in seen:
            continue
        seen.append((conf.dataset, background(conf)))
        load_held_out(conf.dataset, load_scene(*seen[-1]), background(conf))
        if reads_reference and conf.dataset.reference_mesh:
            read_mesh(conf.dataset.reference_mesh)


def measure_all(options: Options) -> list[Row]:
    """Train and measure the missing runs; after each run, runs.csv contains all results so far."""
    plan = [
        (run, options.out / run.folder_name, marks(run.conf.train.end_iter, options.shares)) for run in options.runs
    ]
    kept = [finished(*each) is not None for each in plan]  # all before the first: a folder may hold something else
    rows: list[Row] = []
    for number, ((run, folder, steps), is_kept) in enumerate(zip(plan, kept, strict=True), 1):
        state = "is kept" if is_kept else f"{run.conf.train.end_iter} steps"
        complain(f"{number}/{len(plan)} {run.folder_name}: {state}")
        trained = train(run, folder, steps)
        if compiled := trained["rows"][-1]["compiled"]:
            complain(f"Warning: {run.folder_name}: its time holds the compilation of {compiled} operations; repeat it")
        rows += figures.make_rows(run, trained, measure(run, folder, steps, options.asked, complain), options.asked)
        figures.write_csv(options.out / "runs.csv", rows)
    return rows


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit status."""
    try:
        options = parse_options(arguments)
        rows = measure_all(options)
        both = [*rows, *options.curves]
        from benchmarks.quality.plot import draw  # matplotlib, of which parse_options says where it is missing

        draw(options.out / "curves.png", both, {row["run"] for row in options.curves})
    except UserError as error:
        complain(f"error: {error}")
        return EXIT_USER_ERROR
    print(table.equal_time(both, options.runs[0].spec.name))
    if told := table.spread(both):
        print(f"\n{told}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
