"""Train and score the 15 DTU scans: `python -m benchmarks.dtu_table --scenes FOLDER --dtu FOLDER [--conf FILE]`.

FOLDER of --scenes holds dtu_scan24 and so on, as NeuS publishes them; that of --dtu the reference of the DTU evaluation
(ObsMask/, Points/stl/). Each scan is trained and scored by the command line, in OUT/scan24 and so on. Called again, it
continues where it stopped: a scan that is scored is left alone, one that was being trained continues from its newest
checkpoint. At the end, and with --table at once, it prints the table of what is done beside the published rows.

With --ranks N that many scans are trained at a time (`--mode train --cases` under mpirun), and scored one by one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.dtu_published import ROWS, SCANS
from data.errors import UserError
from data.io.streams import complain, say
from data.readers.dtu import reference_files
from models.evaluation.metric_files import CSV_FILE, FOLDER, JSON_FILE, read_json
from models.evaluation.metric_table import aligned
from models.methods.conf import ExperimentConfig, load_config

PROGRAM = Path(__file__).resolve().parents[1] / "exp_runner.py"
INTERRUPTED = (129, 130, 143, -2, -15)  # exit statuses of a run that was stopped
RESOLUTION = 512  # grid points per side, as published
FAILED = 1
Run = Callable[[list[str]], int]


def main(argv: Sequence[str] | None = None, run: Run | None = None) -> int:
    """Train, evaluate and print; returns the exit status: 1 if a scan failed, that of an interruption, else 0."""
    values = _arguments(argv)
    try:
        conf = load_config(values.conf, "dtu_scan24", values.overrides)
        if not values.table:
            for scan in values.scans:
                reference_files(values.dtu, scan)
                _scene(values.scenes, scan)
        left = [scan for scan in values.scans if _figure(values.out, scan, conf, values.resolution) is None]
        at_a_time = several_at_a_time(values, left) if values.ranks > 1 and left and not values.table else []
    except UserError as error:
        complain(f"error: {error}")
        return 2
    failed = []
    if at_a_time:
        status = subprocess.run(at_a_time, check=False).returncode
        if status in INTERRUPTED:
            return status
    for scan in () if values.table else values.scans:
        if _figure(values.out, scan, conf, values.resolution) is not None:
            continue
        status = _one(values, scan, run or _process)
        if status in INTERRUPTED:
            return status
        if status:
            failed.append(scan)
    say(*table(values, conf))
    if failed:
        complain(f"error: scans {', '.join(map(str, failed))} failed; their messages stand above")
    return FAILED if failed else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=Path, default=Path("public_data"), help="folder of the scenes")
    parser.add_argument("--dtu", type=Path, required=True, help="folder of the DTU evaluation")
    parser.add_argument("--conf", type=Path, default=Path("confs/wmask.conf"), help="conf file")
    parser.add_argument("--out", type=Path, default=Path("exp/dtu_table"), help="folder of the experiments")
    parser.add_argument("--scans", type=int, nargs="+", choices=SCANS, default=SCANS, metavar="N", help="which scans")
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="override a key of the conf"
    )
    parser.add_argument("--resolution", type=int, default=RESOLUTION, help="grid points of the meshes per side")
    parser.add_argument("--ranks", type=int, default=1, metavar="N", help="number of scans trained at the same time")
    parser.add_argument("--table", action="store_true", help="print the table and exit")
    return parser.parse_args(argv)


def _scene(scenes: Path, scan: int) -> Path:
    """The folder of a scan; raises UserError if it is not there."""
    found = [scenes / name for name in (f"dtu_scan{scan}", f"scan{scan}") if (scenes / name).is_dir()]
    if not found:
        raise UserError(f"{scenes}: has no folder dtu_scan{scan}; --scenes names the folder of the scenes")
    return found[0]


def _one(values: argparse.Namespace, scan: int, run: Run) -> int:
    """Train a scan, or resume it, and evaluate it; returns the exit status of the first command that fails."""
    scene = _scene(values.scenes, scan)
    paths = (f"dataset.data_dir={scene}", f"general.base_exp_dir={values.out / f'scan{scan}'}")
    settings = [word for setting in (*values.overrides, *paths) for word in ("--set", setting)]
    common = ["--conf", str(values.conf), "--case", scene.name, *settings]
    scored = ["--mode", "evaluate", "--resolution", str(values.resolution), "--protocol", "dtu", "--scan", str(scan)]
    scored += ["--dtu", str(values.dtu), "--csv", str(values.out / CSV_FILE)]
    say(f"scan {scan}: training")
    return run([*common, "--is_continue"]) or run([*common, *scored])


def several_at_a_time(values: argparse.Namespace, scans: Sequence[int]) -> list[str]:
    """The command that trains these scans, each in its folder; raises UserError if their folders have two names."""
    prefixes = {_scene(values.scenes, scan).name.removesuffix(str(scan)) for scan in scans}
    if len(prefixes) > 1:
        raise UserError(f"{values.scenes}: has folders dtu_scan.. and scan..; give them names of one kind")
    paths = (f"dataset.data_dir={values.scenes / prefixes.pop()}CASE_NAME",)
    paths += (f"general.base_exp_dir={values.out / 'scan'}CASE_NAME",)
    settings = [word for setting in (*values.overrides, *paths) for word in ("--set", setting)]
    beside = Path(sys.executable).with_name("mpirun")
    launch = [str(beside) if beside.is_file() else "mpirun", "-n", str(values.ranks), sys.executable, str(PROGRAM)]
    return [*launch, "--conf", str(values.conf), "--cases", ",".join(map(str, scans)), "--is_continue", *settings]


def _process(arguments: list[str]) -> int:
    """The command line in a separate process; returns its exit status."""
    return subprocess.run([sys.executable, str(PROGRAM), *arguments], check=False).returncode


def _figure(out: Path, scan: int, conf: ExperimentConfig, resolution: int) -> float | None:
    """The Chamfer distance of a scan that was completely trained and evaluated; None for others."""
    path = out / f"scan{scan}" / FOLDER / JSON_FILE
    if not path.is_file():
        return None
    found = read_json(path)
    is_whole = found.get("step") == conf.train.end_iter and found.get("resolution") == resolution
    value = found.get("dtu_chamfer")
    return float(value) if is_whole and found.get("dtu_scan") == scan and value is not None else None


def table(values: argparse.Namespace, conf: ExperimentConfig) -> list[str]:
    """Our results, with dashes for missing scans, above the published rows with their sources."""
    ours = [_figure(values.out, scan, conf, values.resolution) for scan in SCANS]
    done = [index for index, value in enumerate(ours) if value is not None]
    head = ("Chamfer distance, mm", "masks", *map(str, SCANS), "mean", f"mean of {len(done)} done")
    rows = [head, ("this program, measured here", _masks(conf.train.mask_weight > 0), *_cells(ours, done, None))]
    for index, row in enumerate(ROWS):
        cells = _cells(row.values, done, row.mean)
        rows.append((f"{row.name}, published [{index + 1}]", _masks(row.has_masks), *cells))
    sources = (f"[{index + 1}] {row.source}" for index, row in enumerate(ROWS))
    return [*aligned(rows), "Published figures are those of their authors and were not measured here:", *sources]


def _masks(has: bool | None) -> str:
    """Whether masks were used in training."""
    return "-" if has is None else "with" if has else "without"


def _cells(found: Sequence[float | None], done: Sequence[int], mean: float | None) -> list[str]:
    """The values of a row, its mean over all scans, and that over the completed scans."""
    figures = ["-" if value is None else f"{value:.2f}" for value in found]
    whole = fmean(found) if mean is None and len(done) == len(SCANS) else mean
    part = fmean(found[index] for index in done) if done else None
    return [*figures, *("-" if value is None else f"{value:.2f}" for value in (whole, part))]


if __name__ == "__main__":
    sys.exit(main())
