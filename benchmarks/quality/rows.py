"""Metrics as rows: of our runs, in a file, and of curves measured elsewhere."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality.job import Measurement
from benchmarks.quality.runs import Run
from data.errors import UserError
from data.io.files import write_result

Row = Mapping[str, Any]  # by column; None if there is no figure


@dataclass(frozen=True)
class Figure:
    """A column with a metric."""

    column: str
    title: str  # of its panel, and of its column in tables
    is_log: bool = False  # its axis
    digits: int = 2  # behind the point


FIGURES = (
    Figure("chamfer", "Chamfer", is_log=True, digits=5),
    Figure("f_score", "F-score", digits=4),
    Figure("normal_error", "normals, degrees", is_log=True),
    Figure("psnr", "PSNR, dB"),
    Figure("psnr_mask", "PSNR in the mask, dB"),
    Figure("points_median", "points, median", is_log=True, digits=5),
    Figure("points_p90", "points, 90 %", is_log=True, digits=5),
)
WHICH = ("run", "length", "seed")
COLUMNS = (
    *(*WHICH, "conf", "settings", "step", "end_iter", "seconds", "cpu_seconds", "prepare_seconds", "rays", "samples"),
    *("peak_mb", "compiled", "chamfer", "precision", "recall", "f_score", "normal_error", "psnr", "ssim", "psnr_mask"),
    *(
        "ssim_mask",
        "iou",
        "points_median",
        "points_p90",
        "pieces",
        "removed_pieces",
        "note",
        "threshold",
        "resolution",
        "level",
    ),
    *("cpu", "threads", "load", "commit", "is_dirty"),
)
TEXTS = ("run", "conf", "settings", "note", "cpu", "commit", "is_dirty")


def make_rows(run: Run, trained: Mapping[str, Any], measured: Mapping[int, Row], asked: Measurement) -> list[Row]:
    """A row for each measured step."""
    about = {
        "run": run.spec.name,
        "length": run.length,
        "seed": run.conf.train.seed,
        "conf": str(run.spec.path),
        "settings": " ".join(run.spec.settings),
        "end_iter": run.conf.train.end_iter,
        "threshold": asked.threshold,
        "resolution": asked.resolution,
        "level": asked.level,
    }
    about |= {name: trained[name] for name in ("prepare_seconds", "cpu", "threads", "load", "commit", "is_dirty")}
    at = {row["step"]: row for row in trained["rows"]}
    return [dict.fromkeys(COLUMNS) | about | at[step] | figures for step, figures in measured.items()]


def write_csv(path: Path, rows: Iterable[Row]) -> None:
    """Write all rows with a header; None is an empty cell. Raises UserError if the file cannot be written."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: f"{v:.7g}" if isinstance(v, float) else v for name, v in row.items()})
    write_result(path, text.getvalue().encode())


def read_curve(name: str, path: Path) -> list[Row]:
    """The rows of a CSV with the column `seconds` and at least one of FIGURES, as the run `name`.

    A file of this program may contain several runs; their names are appended. Raises UserError for other files.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or []
            rows = [{column: _value(path, column, row.get(column)) for column in COLUMNS} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"--curve {path}: cannot be read ({error}); give a CSV file") from error
    if "seconds" not in names or not {figure.column for figure in FIGURES} & set(names) or not rows:
        wanted = ", ".join(figure.column for figure in FIGURES)
        raise UserError(f"--curve {path}: needs the column seconds, one at least of {wanted}, and a row")
    if any(row["seconds"] is None for row in rows):
        raise UserError(f"--curve {path}: has a row without seconds; fill it in, or leave it out")
    return [row | {"run": f"{name} {row['run'] or ''}".rstrip()} for row in rows]


def _value(path: Path, column: str, text: str | None) -> Any:
    """A number, or a text in text columns; None for an empty cell."""
    if not text:
        return None
    if column in TEXTS:
        return text
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"--curve {path}: {text} in the column {column} is no finite number; correct it")
    return value


@dataclass(frozen=True)
class Curve:
    """The metrics of one training, or the mean of several seeds."""

    run: str
    length: float | None  # None if the file does not say
    rows: tuple[Row, ...]  # by seconds
    seeds: int = 1


def curves(rows: Sequence[Row]) -> list[Curve]:
    """The trainings of the rows, in their order."""
    found: dict[tuple, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in WHICH), []).append(row)
    return [
        Curve(run, length, tuple(sorted(own, key=lambda row: row["seconds"])))
        for (run, length, _), own in found.items()
    ]


def means(rows: Sequence[Row]) -> list[Curve]:
    """The curves averaged over the seeds; a metric that one seed lacks (no surface) is omitted."""
    found: dict[tuple, list[Curve]] = {}
    for curve in curves(rows):
        found.setdefault((curve.run, curve.length, len(curve.rows)), []).append(curve)
    return [
        Curve(run, length, tuple(_mean(each) for each in zip(*(curve.rows for curve in own), strict=True)), len(own))
        for (run, length, _), own in found.items()
    ]


def _mean(rows: Sequence[Row]) -> Row:
    """The mean of the rows at one time."""
    columns = ("seconds", "cpu_seconds", *(figure.column for figure in FIGURES))
    values = {column: [row[column] for row in rows] for column in columns}
    return {column: None if None in each else sum(each) / len(each) for column, each in values.items()}
