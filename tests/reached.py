"""What each quantity of each golden file has reached, by instruction set: golden/reached.json.

Bounds say what a right port must reach. They lie far above what this one does reach, and accuracy could be lost beneath
them unseen. So a quantity also fails where it is more than `SLACK` times what was reached and beyond `FLOOR` of its
bound: below that, where samples fall differs from one order of a sum to another, and errors with it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

TABLE = Path(__file__).resolve().parent / "golden" / "reached.json"
SLACK = 2.0
FLOOR = 0.1  # of the bound


def level() -> str:
    """The instruction set in use; "" where NEUS_ISA does not say."""
    return os.environ.get("NEUS_ISA", "")


def allowed(bound: float, reached: float | None) -> float:
    """Beyond which error a quantity fails."""
    return bound if reached is None else min(bound, max(SLACK * reached, FLOOR * bound))


def of_file(name: str) -> dict[str, float]:
    """Errors by quantity that a golden file has reached here; empty for a file or an instruction set not listed."""
    return read().get(level(), {}).get(name, {}).get("reached", {})


def read() -> dict[str, dict]:
    """The table: instruction set -> golden file -> the commit and the errors."""
    return json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {}


def keep(name: str, errors: Iterable[tuple[str, float]]) -> None:
    """Put the errors of a golden file into the table, in the place of those before."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=TABLE.parent, capture_output=True, text=True, check=True
    ).stdout.strip()
    table = read()
    entry = {"commit": commit, "reached": {quantity: float(f"{error:.2g}") for quantity, error in errors}}
    table.setdefault(level(), {})[name] = entry
    write(table)


def write(table: dict[str, dict]) -> None:
    """Replace the table."""
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
