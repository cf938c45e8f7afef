"""Where the time of the recorded steps goes, from the kernels of benchmarks/gpu_trace.py or Nsight Compute."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu_trace import Launch

# First match wins.
GROUPS = (
    ("matrix products", re.compile(r"gem[mv]|cutlass|cublas|xmma|split_?k|neus::product_kernel", re.IGNORECASE)),
    ("column sums", re.compile(r"column_sums|add_columns")),
    ("element-wise", re.compile(r"neus::each_(kernel|part_kernel)")),
    ("other own kernels", re.compile(r"neus::")),
    ("others", re.compile("")),
)
GAP = 20_000  # nanoseconds between two kernels: a longer time is the host's, not that of a launch
LAMBDA = re.compile(r"neus::(\w+)(?:<[^(]*>)?\([^{]*\{lambda\([^)]*\)#(\d+)\}")


@dataclass(frozen=True)
class Spent:
    """The launches of a kernel, or of a group of kernels, in a step, and their milliseconds."""

    name: str
    launches: float
    milliseconds: float


def short(name: str) -> str:
    """A kernel's name; of the work of a function in csrc/cuda, the function and its how many-th lambda."""
    found = LAMBDA.search(name)
    return f"{found[1]}, lambda {found[2]}" if found else re.sub(r"^void ", "", name)


def group_of(name: str) -> str:
    """The first group whose pattern is in a name."""
    return next(group for group, pattern in GROUPS if pattern.search(name))


def spent(launches: Sequence[Launch], steps: int, *, by_group: bool = False) -> list[Spent]:
    """Per step, the longest total first."""
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for launch in launches:
        name = group_of(launch.name) if by_group else short(launch.name)
        counts[name] += 1
        times[name] += launch.end - launch.start
    return [Spent(name, counts[name] / steps, 1e-6 * time / steps) for name, time in times.most_common()]


def gaps(launches: Sequence[Launch], steps: int) -> tuple[float, float]:
    """Milliseconds per step between launches in order: in gaps shorter than GAP, and in longer ones.

    The time before the first kernel is missing, so that the second number lacks one of `steps` waits for the host.
    """
    short_ones = long_ones = 0
    end = launches[0].end if launches else 0
    for launch in launches:
        gap = max(0, launch.start - end)
        short_ones, long_ones = (short_ones + gap, long_ones) if gap < GAP else (short_ones, long_ones + gap)
        end = max(end, launch.end)
    return 1e-6 * short_ones / steps, 1e-6 * long_ones / steps


def summary(launches: Sequence[Launch], steps: int) -> dict[str, float]:
    """Launches and milliseconds of a step, by group; and the times without a kernel, which Nsight Compute's lack."""
    found = {"launches": len(launches) / steps}
    for one in spent(launches, steps, by_group=True):
        found |= {f"launches of {one.name}": one.launches, f"ms of {one.name}": one.milliseconds}
    between, waiting = gaps(launches, steps)
    return found | ({"ms between launches": between, "ms of waiting for the host": waiting} if waiting else {})


def read_ncu(path: Path) -> list[Launch]:
    """The kernels in Nsight Compute's file, one after the other without gaps; nothing if there is no such file."""
    if not path.is_file():
        return []
    found, begin = [], 0
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for row in csv.DictReader(line for line in lines if line.startswith('"')):
        if row.get("Metric Name") == "gpu__time_duration.sum" and row.get("Metric Value"):
            end = begin + round(float(row["Metric Value"].replace(",", "")))
            found.append(Launch(row["Kernel Name"], begin, end))
            begin = end
    return found
