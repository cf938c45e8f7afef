"""The metrics of an evaluation as files: metrics.json, and a row of metrics.csv."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.errors import UserError, reason
from data.io.files import LINK_WORDS, read_regular, require_place, write_result
from data.io.lock import waited_for

FOLDER, JSON_FILE, CSV_FILE = "report", "metrics.json", "metrics.csv"
FIRST_COLUMN = "experiment"  # first columns of a table of this program
OURS = {FIRST_COLUMN, "scene", "model", "step"}  # columns that every table has
MOST_BYTES = 1 << 26


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Raises UserError if the file cannot be written."""
    write_result(path, (json.dumps(content, indent=1) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of `write_json`; raises UserError for other files."""
    try:
        content = json.loads(_content(path).decode("utf-8"))
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path}: cannot be read ({reason(error)}); evaluate the experiment again") from error
    if not isinstance(content, dict) or not isinstance(content.get(FIRST_COLUMN), str):
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
            _add_row(path, row)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); check the folder and the space") from error


def _add_row(path: Path, row: Mapping[str, Any]) -> None:
    """`add_row`, with the table locked."""
    columns, rows = _read_table(path) if path.exists() else ([], [])
    columns += [name for name in row if name not in columns]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows([*rows, {name: "" if value is None else value for name, value in row.items()}])
    write_result(path, text.getvalue().encode())


def _read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Columns and rows; raises UserError for other tables."""
    try:
        reader = csv.DictReader(io.StringIO(_content(path).decode("utf-8")), strict=True)
        rows = list(reader)
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as a table ({reason(error)}); name another file with --csv") from error
    columns: Sequence[str] = reader.fieldnames or ()
    is_ours = len(set(columns)) == len(columns) and columns[:1] == [FIRST_COLUMN] and set(columns) >= OURS
    if not is_ours or any(None in row or None in row.values() for row in rows):
        raise UserError(f"{path}: is not a table of metrics of this program; name another file with --csv")
    return list(columns), rows


def _content(path: Path) -> bytes:
    """The bytes of a file; raises UserError if it cannot be read or is too large."""
    try:
        content = read_regular(path, MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the name and its permissions") from error
    if len(content) > MOST_BYTES:
        raise UserError(f"{path}: is larger than {MOST_BYTES >> 20} MiB; name another file")
    return content
