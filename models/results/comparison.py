"""Compare evaluated experiments: differences of their confs, and their metrics."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from glob import escape, glob
from pathlib import Path
from typing import Any

from data.errors import UserError, listed
from data.io.files import is_file, similar_names
from models.results.metric_tables import FOLDER, JSON_FILE, aligned, lines, read_json

UNTOLD = ("general.base_exp_dir", "general.recording")  # keys that differ without effect
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
MOST = 12  # experiments in a message
LONGEST = 48  # characters of a value; of a path the end is kept
SAME = "no difference in confs or evaluation"


Runs = Sequence[tuple[str, Mapping[str, Any]]]  # folder and metrics of each experiment


def evaluated(folders: Sequence[Path]) -> Runs:
    """The experiments of these folders with their metrics; raises UserError, which names every folder without one."""
    found, errors = [], []
    for given in folders:
        try:
            folder = experiment_in(given)
            found.append((str(folder), _figures(folder)))
        except UserError as error:
            errors.append(str(error))
    if errors:
        raise UserError(". ".join(errors))
    return found


def experiment_in(folder: Path) -> Path:
    """The evaluated experiment that a folder is, or the one below it, up to `DEPTH` folders down.

    The folder itself if there is none. Raises UserError, which lists them, for several.
    """
    found: list[Path] = []
    for depth in range(DEPTH + 1):
        places = glob(f"{escape(str(folder))}/{'*/' * depth}{FOLDER}/{JSON_FILE}")  # [] where one cannot be read
        found = sorted(Path(place).parents[1] for place in places)
        if found:
            break
    if len(found) > 1:
        raise UserError(f"{folder}: holds several experiments; name one of them: {listed(list(map(str, found)), MOST)}")
    return found[0] if found else folder


def compare(found: Runs) -> Iterator[str]:
    """The lines of the comparison."""
    yield "what differs"
    rows = [(f"  {key}", *values) for key, *values in differences(found)]
    heads = [("", *(name for name, _ in found))]
    yield from aligned([*heads, *rows]) if rows else [f"  {SAME}"]
    if unequal := incomparable(found):
        yield f"not comparable: {listed(unequal, len(unequal))} differ"
    yield ""
    yield from lines(found)


def incomparable(found: Runs) -> list[str]:
    """What differs between the runs such that their metrics cannot be compared, in words."""
    return [words for key, words in MEASURES.items() if len({_shown(figures.get(key)) for _, figures in found}) > 1]


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


def differences(found: Runs) -> Iterator[tuple[str, ...]]:
    """Each key with different values, and the values: of the confs, then of the evaluations."""
    runs = [figures for _, figures in found]
    confs = [run["conf"] if isinstance(run.get("conf"), Mapping) else {} for run in runs]
    for tables, keys in ((confs, dict.fromkeys(key for conf in confs for key in conf)), (runs, EVALUATED)):
        for key in keys:
            values = [_shown(table.get(key)) for table in tables]
            if len(set(values)) > 1 and key not in UNTOLD:
                yield (key, *values)


def _shown(value: Any) -> str:
    """A value of a conf or an evaluation, shortened."""
    text = "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else f"...{text[3 - LONGEST :]}"
