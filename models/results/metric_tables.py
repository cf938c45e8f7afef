"""The metrics of an evaluation as tables: on the terminal, in metrics.json, and a row of metrics.csv.

Also the comparison of evaluated experiments: differences of their confs, their metrics, and compare.html.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import escape, glob
from math import isclose, isfinite
from pathlib import Path
from typing import Any

from data.errors import UserError, listed, reason
from data.io.files import LINK_WORDS, is_file, require_place, similar_names, write_result
from data.io.lock import waited_for
from data.io.untrusted import read_content, read_object
from models.results.report.document import REPORT, document, read_page

# Of a mesh with details: pictures without and with them, and a file with figures without.
WITHOUT_DETAILS, WITH_DETAILS, DETAILS_FILE = "without_details.png", "with_details.png", "details.json"
NCC_WITHOUT = "ncc_without_details"
HIGHER, LOWER = "higher", "lower"
LONGEST_NAME_SHOWN = 40  # characters of a name; of a path the end is kept
Value = str | Callable[[Any, Mapping[str, Any]], str]  # a format, or (value, all metrics) -> text
DECIBELS, PLAIN, PERCENT, PIXELS, MILLIMETRES = "{:.2f} dB", "{:.3f}", "{:.1%}", "{:.2f} px", "{:.3f} mm"


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str  # in metrics.json
    label: str
    format: Value
    better: str = ""  # HIGHER or LOWER; "" for a value that is neither better nor worse


def _text(value: Any, _all: Mapping[str, Any]) -> str:
    text = str(value) or "none"
    return text if len(text) <= LONGEST_NAME_SHOWN else f"...{text[3 - LONGEST_NAME_SHOWN :]}"


def _first(value: Any, _all: Mapping[str, Any]) -> str:
    return "inside the mask" if value == "psnr_mask" else "whole image"


def _length(value: float, figures: Mapping[str, Any]) -> str:
    """Radii, and metres, or world units if these differ."""
    world = float(figures.get("world_per_radius") or 1.0)
    if figures.get("is_metric"):
        return f"{value:.4f} radii = {value * world:.4g} m"
    return f"{value:.4f} radii" + ("" if isclose(world, 1.0) else f" = {value * world:.4g} world units")


GROUPS: dict[str, tuple[Row, ...]] = {
    "test photographs": (
        Row("test_photographs", "number", _text),
        Row("decided_by", "training decided by", "{} photographs"),
        Row("counts_first", "primary metrics", _first),
        Row("psnr", "PSNR, whole image", DECIBELS, HIGHER),
        Row("ssim", "SSIM, whole image", PLAIN, HIGHER),
        Row("psnr_mask", "PSNR, inside the mask", DECIBELS, HIGHER),
        Row("ssim_mask", "SSIM, inside the mask", PLAIN, HIGHER),
        Row("iou", "IoU of opacity and mask", PLAIN, HIGHER),
    ),
    "ground truth": (
        Row("ground_truth", "from", _text),
        Row("accuracy", "accuracy: surface to ground truth", _length, LOWER),
        Row("completeness", "completeness: ground truth to surface", _length, LOWER),
        Row("chamfer", "Chamfer distance: mean of both", _length, LOWER),
        Row("tau", "tau", _length),
        Row("precision", "precision: surface within tau", PERCENT, HIGHER),
        Row("recall", "recall: ground truth within tau", PERCENT, HIGHER),
        Row("f_score", "F-score", PERCENT, HIGHER),
        Row("normal_consistency", "normal consistency", PLAIN, HIGHER),
        Row("relief_rms", "relief of the ground truth, rms", _length),
        Row("relief_correlation", "correlation of relief", PLAIN, HIGHER),
        Row("relief_gain", "gain of relief", PLAIN),
        Row("relief_explained", "relief explained", PERCENT, HIGHER),
        Row("relief_correlation_fine", "correlation of fine relief", PLAIN, HIGHER),
        Row("relief_gain_fine", "gain of fine relief", PLAIN),
    ),
    "photographs across the mesh": (
        Row("ncc", "NCC of test and training photographs", PLAIN, HIGHER),
        Row(NCC_WITHOUT, "without details of the mesh", PLAIN),
        Row("ncc_patches", "patches", _text),
    ),
    "SfM points": (
        Row("points_from", "from", _text),
        Row("points_given", "given", _text),
        Row("points_scored", "on the object, evaluated", _text),
        Row("points_median", "distance to the surface, median", _length, LOWER),
        Row("points_p90", "90th percentile", _length, LOWER),
        Row("points_median_px", "median, in pixels", PIXELS, LOWER),
        Row("points_p90_px", "90th percentile, in pixels", PIXELS, LOWER),
        Row("points_missing", "farther than 0.01 radii", PERCENT, LOWER),
    ),
    "cover of the mesh": (
        Row("photographs", "photographs with cameras", _text),
        Row("sides_missing", "no photograph from", _text),
        Row("views_median", "photographs that see half of its area", "{:.0f}"),
        Row("cover_views", "area that 3 photographs see", PERCENT, HIGHER),
        Row("cover_points", "area within 0.05 radii of a point", PERCENT, HIGHER),
        Row("points_off_plane", "points off the dominant plane", _text),
        Row("area_off_plane", "area off this plane", PERCENT),
        Row("cover_off_plane", "of it within 0.05 radii of a point", PERCENT, HIGHER),
        Row("thin_area", "area of walls thinner than 0.1 radii", PERCENT),
        Row("thin_tested", "of it with points near both sides", PERCENT, HIGHER),
    ),
    "DTU protocol": (
        Row("dtu_scan", "scan", _text),
        Row("dtu_accuracy", "accuracy: mesh to scan", MILLIMETRES, LOWER),
        Row("dtu_completeness", "completeness: scan to mesh", MILLIMETRES, LOWER),
        Row("dtu_chamfer", "Chamfer distance: mean of both", MILLIMETRES, LOWER),
    ),
    "cameras": (
        Row("epipolar_px", "epipolar distance of matches, median", PIXELS, LOWER),
        Row("epipolar_pairs", "pairs with enough overlap", _text),
    ),
    "run": (
        Row("step", "steps", _text),
        Row("seconds", "training time", "{:.0f} s", LOWER),
        Row("resolution", "mesh: grid points per side", _text),
        Row("triangles", "mesh: triangles", _text),
    ),
}
COLUMN_GAP = "  "


def lines(columns: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """The table of one or several runs as lines: header (unless None) and metrics.

    Metrics that no run has are omitted; a run without a metric has a dash.
    """
    indented = [row if len(row) == 1 else [f"  {row[0]}", *row[1:]] for row in rows(columns)]
    heads = [("", *(head for head, _ in columns))] if len(columns) > 1 else []
    return aligned([*heads, *indented])


def rows(columns: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[str]]:
    """The same as cells: a label and a cell per run; a row of one cell is the title of a group."""
    return [
        [entry] if isinstance(entry, str) else [entry.label, *(_cell(entry, figures) for _, figures in columns)]
        for entry in _entries(columns)
    ]


def best(columns: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[int]]:
    """For each row of `rows`: the columns, from 1, with the best value; empty if the values cannot be compared."""
    return [[] if isinstance(entry, str) else _best(entry, columns) for entry in _entries(columns)]


def _entries(columns: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str | Row]:
    """The titles of groups, and the metrics of these that any run has."""
    for title, group in GROUPS.items():
        present = [row for row in group if any(figures.get(row.name) is not None for _, figures in columns)]
        if present:
            yield title
        yield from present


def _best(row: Row, columns: Sequence[tuple[str, Mapping[str, Any]]]) -> list[int]:
    """The columns, from 1, with the best value as shown; empty if all are shown alike or one has another type."""
    values = {at: figures.get(row.name) for at, (_, figures) in enumerate(columns, 1)}
    numbers = {at: value for at, value in values.items() if value is not None}
    if not row.better or not all(type(value) in (int, float) and isfinite(value) for value in numbers.values()):
        return []
    texts = {at: _cell(row, columns[at - 1][1]) for at in numbers}
    if len(set(texts.values())) < 2:
        return []
    first = (max if row.better == HIGHER else min)(numbers, key=numbers.__getitem__)
    return [at for at, text in texts.items() if text == texts[first]]


def _cell(row: Row, figures: Mapping[str, Any]) -> str:
    """The text of a value; a value of another type is shown unchanged."""
    value = figures.get(row.name)
    try:
        if value is None:
            return "-"
        return row.format.format(value) if isinstance(row.format, str) else row.format(value, figures)
    except (TypeError, ValueError, OverflowError):
        return str(value)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines with aligned columns; a row of one cell is a title and is not cut."""
    count = max((len(row) for row in rows), default=0)
    whole = [row for row in rows if len(row) > 1]
    widths = [max((len(row[column]) for row in whole if column < len(row)), default=0) for column in range(count)]
    return [
        COLUMN_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows
    ]


FOLDER, JSON_FILE, CSV_FILE = "report", "metrics.json", "metrics.csv"
FIRST_COLUMN = "experiment"  # first columns of a table of this program
OURS = {FIRST_COLUMN, "scene", "model", "step"}  # columns that every table has
MOST_TABLE_BYTES = 1 << 26


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Raises UserError if the file cannot be written."""
    write_result(path, (json.dumps(content, indent=1) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of `write_json`; raises UserError for other files."""
    content = read_object(path, MOST_TABLE_BYTES)
    if not isinstance(content.get(FIRST_COLUMN), str):
        raise UserError(f"{path}: contains no metrics of this program; evaluate the experiment again")
    return content


def require_table(path: Path) -> None:
    """Raises UserError if a row cannot be added to a table; called before the evaluation."""
    require_place(path, "--csv")
    try:
        is_link, is_there = path.is_symlink(), path.exists()
    except OSError as error:  # the name is too long, or the folder is not accessible
        raise UserError(f"--csv {path}: cannot be written ({error.strerror}); name another file") from error
    if is_link:
        raise UserError(f"{path}: {LINK_WORDS}, or name another file with --csv")
    if is_there:
        _read_table(path)


def add_row(path: Path, row: Mapping[str, Any]) -> None:
    """Add a row to the table at `path`, which is created if needed; new columns are appended.

    Other processes that add rows wait. Raises UserError if it is not a table of this program, or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with waited_for(path.parent):
            columns, rows = _read_table(path) if path.exists() else ([], [])
            columns += [name for name in row if name not in columns]
            text = io.StringIO()
            writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows([*rows, {name: "" if value is None else value for name, value in row.items()}])
            write_result(path, text.getvalue().encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); check the folder and the space") from error


def _read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Columns and rows; raises UserError for other tables."""
    try:
        reader = csv.DictReader(io.StringIO(read_content(path, MOST_TABLE_BYTES).decode("utf-8")), strict=True)
        rows = list(reader)
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as a table ({reason(error)}); name another file with --csv") from error
    columns: Sequence[str] = reader.fieldnames or ()
    is_ours = len(set(columns)) == len(columns) and columns[:1] == [FIRST_COLUMN] and set(columns) >= OURS
    if not is_ours or any(None in row or None in row.values() for row in rows):
        raise UserError(f"{path}: is not a table of metrics of this program; name another file with --csv")
    return list(columns), rows


WITHOUT_EFFECT = ("general.base_exp_dir", "general.recording")  # keys that differ without effect
# Options of the evaluation; metrics of runs that differ in these are not comparable.
EVALUATED: tuple[str, ...] = ("scene", "model", "test_photographs", "decided_by", "ground_truth", "tau", "points_from")
EVALUATED += ("dtu_scan", "resolution", "threshold")
MEASURES = {
    "scene": "the scenes",
    "test_photographs": "the numbers of test photographs",
    "ground_truth": "the ground truths",
    "tau": "the taus",
    "points_from": "the points",
    "resolution": "the resolutions of the meshes",
}
DEPTH = 2  # folders of an experiment below one that is named: exp/SCENE/CONF
MOST_NAMED_EXPERIMENTS = 12  # experiments in a message
LONGEST_VALUE = 48  # characters of a value; of a path the end is kept
NO_DIFFERENCE = "no difference in confs or evaluation"


Runs = Sequence[tuple[str, Mapping[str, Any]]]  # folder and metrics of each experiment


def evaluated(folders: Sequence[Path]) -> Runs:
    """The experiments of these folders with their metrics; raises UserError, which names every folder without one."""
    runs, errors = [], []
    for given in folders:
        try:
            folder = experiment_in(given)
            runs.append((str(folder), _figures(folder)))
        except UserError as error:
            errors.append(str(error))
    if errors:
        raise UserError(". ".join(errors))
    return runs


def experiment_in(folder: Path) -> Path:
    """The evaluated experiment that a folder is, or the one below it, up to `DEPTH` folders down.

    The folder itself if there is none. Raises UserError, which lists them, for several.
    """
    experiments: list[Path] = []
    for depth in range(DEPTH + 1):
        places = glob(f"{escape(str(folder))}/{'*/' * depth}{FOLDER}/{JSON_FILE}")  # [] where one cannot be read
        experiments = sorted(Path(place).parents[1] for place in places)
        if experiments:
            break
    if len(experiments) > 1:
        names = listed(list(map(str, experiments)), MOST_NAMED_EXPERIMENTS)
        raise UserError(f"{folder}: holds several experiments; name one of them: {names}")
    return experiments[0] if experiments else folder


def compare(runs: Runs) -> Iterator[str]:
    """The lines of the comparison."""
    yield "what differs"
    rows = [(f"  {key}", *values) for key, *values in differences(runs)]
    heads = [("", *(name for name, _ in runs))]
    yield from aligned([*heads, *rows]) if rows else [f"  {NO_DIFFERENCE}"]
    if unequal := incomparable(runs):
        yield f"not comparable: {listed(unequal, len(unequal))} differ"
    yield ""
    yield from lines(runs)


def incomparable(runs: Runs) -> list[str]:
    """What differs between the runs such that their metrics cannot be compared, in words."""
    return [words for key, words in MEASURES.items() if len({_short(figures.get(key)) for _, figures in runs}) > 1]


def _figures(folder: Path) -> dict[str, Any]:
    """The metrics of an experiment's last evaluation."""
    path = folder / FOLDER / JSON_FILE
    try:
        is_there = is_file(path)
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror}); check the path and its permissions") from error
    if not is_there and not os.path.lexists(folder):
        raise UserError(f"{folder}: no such folder{similar_names(folder)}; name the folder of an experiment")
    if not is_there:
        raise UserError(f"{folder}: has no {FOLDER}/{JSON_FILE}; name an experiment folder after --mode evaluate")
    return read_json(path)


def differences(runs: Runs) -> Iterator[tuple[str, ...]]:
    """Each key with different values, and the values: of the confs, then of the evaluations."""
    figures = [entry for _, entry in runs]
    confs = [run["conf"] if isinstance(run.get("conf"), Mapping) else {} for run in figures]
    for tables, keys in ((confs, dict.fromkeys(key for conf in confs for key in conf)), (figures, EVALUATED)):
        for key in keys:
            values = [_short(table.get(key)) for table in tables]
            if len(set(values)) > 1 and key not in WITHOUT_EFFECT:
                yield (key, *values)


def _short(value: Any) -> str:
    """A value of a conf or an evaluation, shortened."""
    text = "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"...{text[3 - LONGEST_VALUE :]}"


COMPARE_PAGE = "compare.html"
# Of the page of a run.
COMPARED_KEYS = ("pictures", "photographs", "mesh", "mesh_words", "status", "curves", "up", "front")


def write_page(
    folders: Sequence[Path], runs: Runs, output: Path | None, language: str | None, say: Callable[[str], None]
) -> None:
    """Write the page and log its path; raises UserError if the path given by the user cannot be written."""
    path = output or folders[0] / COMPARE_PAGE
    names = [str(folder) for folder in folders]
    figures = rows(runs)
    content = {
        "names": names,
        "differs": [list(row) for row in differences(runs)],
        "figures": figures,
        "best": [[] for _ in figures] if incomparable(runs) else best(runs),
        "runs": [_run(folder, say) for folder in folders],
    }
    try:
        write_result(path, document("compare", " | ".join(Path(name).name for name in names), content, language))
    except UserError as error:
        if output is not None:
            raise
        say(f"no page: {error}, or pass another file with --output FILE.html")
    else:
        say(f"page with images and meshes: {path}")


def _run(folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The data of a run's page. Without a page only the metrics are returned, and a warning is logged."""
    path = folder / REPORT
    try:
        if not is_file(path):
            say(f"{folder}: has no {REPORT}, so the page shows only its metrics")
            return {}
        content = read_page(path)
    except (UserError, OSError) as error:
        say(f"{path}: cannot be read ({error}), so the page shows only its metrics")
        return {}
    return {key: content.get(key) for key in COMPARED_KEYS}
