"""What each quantity of each golden file has reached, by instruction set: golden/reached.json.

Bounds say what a right port must reach. They lie far above what this one does reach, and accuracy could be lost beneath
them unseen. So a quantity also fails where it is more than `SLACK` times what was reached, and beyond a share of its
bound that rounding alone may take it to.

That share is small for fields, and for what is rendered at the depths of the file. It is large for what follows from
depths that are placed here: a distance that is rounded otherwise may move a sample by 1e-3 (upsample_ray.h says why),
and with it opacities, slopes and gradients sevenfold. The published code differs from itself as much, from float32 to
float64 and from one machine to another.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from models.machine import isa

TABLE = Path(__file__).resolve().parent / "golden" / "reached.json"
SLACK = 2.0
STEADY_FLOOR, MOVING_FLOOR = 0.03, 0.5  # of the bound
GIVEN_DEPTHS = " (given depths)"  # behind the name of what is rendered at the depths of the file


@dataclass(frozen=True)
class Row:
    """One compared quantity."""

    name: str
    error: float
    bound: float
    before: float | None = None  # what an earlier version reached

    @property
    def allowed(self) -> float:
        """The largest error that passes."""
        if self.before is None:
            return self.bound
        is_steady = self.name.startswith("field/") or self.name.endswith(GIVEN_DEPTHS)
        floor = STEADY_FLOOR if is_steady else MOVING_FLOOR
        return min(self.bound, max(SLACK * self.before, floor * self.bound))

    @property
    def passed(self) -> bool:
        """Whether the error is one that passes; NaN is not."""
        return bool(self.error <= self.allowed)


def of_file(name: str) -> dict[str, float]:
    """Errors by quantity that a golden file has reached here; empty for a file or an instruction set not listed."""
    return read().get(isa.level().name, {}).get(name, {}).get("reached", {})


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
    table.setdefault(isa.level().name, {})[name] = entry
    write(table)


def write(table: dict[str, dict]) -> None:
    """Replace the table."""
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
