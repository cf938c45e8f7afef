"""Results as a table for readers and as one line of JSON for programs."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from benchmarks.shapes import FULL, ROOT, SMALL, Shape
from benchmarks.workers import Answer

MIB, GIGA = 2**20, 1e9
OURS, PLAIN, PEER, MATMUL = "ours", "plain", "peer", "matmul"


@dataclass(frozen=True)
class Bound:
    """A target of a result."""

    value: float
    of: Literal["ours", "ratio"]
    is_least: bool = False  # the figure should be at least, not at most, the value

    def __str__(self) -> str:
        return f"{'ratio ' if self.of == 'ratio' else ''}{'>=' if self.is_least else '<='} {self.value:g}"

    def holds(self, ours: float, ratio: float | None) -> bool | None:
        """Whether it is reached; None for a ratio without a peer."""
        figure = ours if self.of == "ours" else ratio
        if figure is None:
            return None
        return figure >= self.value if self.is_least else figure <= self.value


# What the project wants to reach.
STEP_RATIO = {FULL: Bound(0.35, "ratio"), SMALL: Bound(0.60, "ratio")}
MEMORY_RATIO = {FULL: Bound(0.30, "ratio")}
MATMUL_SHARE = {FULL: Bound(0.6, "ours", is_least=True)}
IMAGE_RATIO = Bound(0.35, "ratio")
START_SECONDS, COLD_START_SECONDS = Bound(10.0, "ours"), Bound(120.0, "ours")
FIRST_LOSS = Bound(1e-4, "ours")  # as tests/parity.py asks of losses


@dataclass(frozen=True)
class Row:
    """One result: ours, and the peer's if there is one."""

    name: str
    ours: float
    peer: float | None = None
    bound: Bound | None = None

    @property
    def ratio(self) -> float | None:
        """The figure of this program divided by that of the peer."""
        return None if self.peer is None else self.ours / self.peer

    @property
    def is_reached(self) -> bool | None:
        """Whether the bound holds; None if there is no bound or no peer."""
        return None if self.bound is None else self.bound.holds(self.ours, self.ratio)


def step_rows(shape: Shape, flops: int, answers: Mapping[str, Sequence[Answer]], warm_up: int) -> list[Row]:
    """Figures of one shape from the answers of `ours`, of `matmul`, and of `plain` and `peer` where they are.

    The first `warm_up` answers of each count for peak memory only; the very first losses, from the same weights and
    the same jitter, show that both sides do the same.

    Args:
        flops: operations that a step cannot do without.
    """
    seconds = {name: median(answer["seconds"] for answer in each[warm_up:]) for name, each in answers.items()}
    peak = {name: each[-1]["peak_bytes"] / MIB for name, each in answers.items()}
    rate = median(answer["rate"] for answer in answers[MATMUL][warm_up:])
    share = {name: flops / seconds[name] / rate for name in (OURS, PEER) if name in seconds}
    rows = [
        Row(f"step {shape}, s", seconds[OURS], seconds.get(PEER), STEP_RATIO.get(shape)),
        Row(f"peak memory {shape}, MiB", peak[OURS], peak.get(PEER), MEMORY_RATIO.get(shape)),
        Row(f"necessary work {shape}, GFLOP", flops / GIGA),
        Row(f"matmul rate, the sides paused, in turn with {shape}, GFLOP/s", rate / GIGA),
        Row(f"share of matmul rate {shape}", share[OURS], share.get(PEER), MATMUL_SHARE.get(shape)),
    ]
    if PLAIN in answers:
        rows.append(Row(f"step {shape} in plain Jittor, s", seconds[PLAIN]))
        rows.append(Row(f"peak memory {shape} in plain Jittor, MiB", peak[PLAIN]))
    if PEER in answers:
        ours, peer = (answers[name][0]["loss"] for name in (OURS, PEER))
        rows.append(Row(f"first loss {shape}, relative difference", abs(ours - peer) / abs(peer), bound=FIRST_LOSS))
    return rows


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| measure | ours | published | ratio | target | reached |", "|---|---|---|---|---|---|"]
    for row in rows:
        reached = {None: "", True: "yes", False: "no"}[row.is_reached]
        lines.append(
            f"| {row.name} | {_figure(row.ours)} | {_figure(row.peer)} | {_figure(row.ratio)} "
            f"| {row.bound or ''} | {reached} |"
        )
    return "\n".join(lines)


def profile_table(shape: Shape, wall: float, phases: Mapping[str, Mapping[str, float]]) -> str:
    """Milliseconds of a step by phase and kind; the rest of its wall-clock time is Python's and the dispatch's."""
    lines = [f"| phase ({shape}) | operations | ms | share |", "|---|---|---|---|"]
    entries = [(phase, kind, seconds) for phase, kinds in phases.items() for kind, seconds in kinds.items()]
    rest = wall - sum(seconds for *_, seconds in entries)
    for phase, kind, seconds in [*entries, ("between operations", "Python, graph, dispatch", rest), ("all", "", wall)]:
        lines.append(f"| {phase} | {kind} | {seconds * 1e3:.2f} | {seconds / wall:.1%} |")
    return "\n".join(lines)


def provenance() -> dict[str, object]:
    """Commit, machine and versions of a measurement."""
    return {"commit": _git("rev-parse", "HEAD"), "is_dirty": bool(_git("status", "--porcelain")), "cpu": _cpu_name()}


def _figure(value: float | None) -> str:
    """Three significant digits or all those before the point; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _cpu_name() -> str:
    """The processor's name and the number of its cores that this process may use."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def _git(*arguments: str) -> str:
    """The output of a git command; "" outside a repository or without git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
