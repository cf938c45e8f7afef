"""What results have in common: a table for readers, and the commit and machine for the line of JSON."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MIB = 2**20


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers with three digits or all before the point, "-" for None, "" without rows."""
    lines = [heads, ["---"] * len(heads), *(map(_cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else ""


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return "-" if value is None else str(value).replace("|", "/")


def provenance() -> dict[str, object]:
    """Commit, machine, and load of the minute before: what else went on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    name = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    return {
        "commit": _git("rev-parse", "HEAD"),
        "is_dirty": bool(_git("status", "--porcelain")),
        "cpu": f"{name}, {len(os.sched_getaffinity(0))} cores",
        "load": os.getloadavg()[0],
    }


def _git(*arguments: str) -> str:
    """The output of a git command; "" outside a repository or without git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
