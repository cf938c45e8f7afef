"""Collect the results of benchmarks/gpu.sh into results.json and the tables of results.md."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import table

TRAINED = {"bunny": "chamfer", "dtu": "psnr"}  # the value that is read of the evaluation of a training
MEASURED = ("steps", "steps_womask", "peer", "trace", "fast")  # stages that leave a JSON file
FIRST_LINES, LAST_LINES, KERNELS = 200, 40, 30  # of each log (of one that did not fail, the last ones); of kernels
# Targets for an H100 or H200, by the name of the figure.
TARGETS = (
    ("step, ms", "<=", 12.0),
    ("step pipelined, ms", "<=", 10.0),
    ("step / published", "<=", 0.35),
    ("reduced step, ms", "<=", 8.0),
    ("womask step, ms", "<=", 18.0),
    ("memory / published", "<=", 0.25),
    ("bunny chamfer", "<=", 0.0010),
    ("bunny_train, s", "<=", 60.0),
)
# Measured on an H100 with 16 cores of a virtual machine, before the networks ran in tiles.
BEFORE = {
    "step, ms": 29.6,
    "published step, ms": 53.5,
    "reduced step, ms": 18.9,
    "published reduced step, ms": 51.2,
    "womask step, ms": 45.0,
    "reduced womask step, ms": 33.6,
    "pool, MiB": 873,
    "published memory, MiB": 3698,
    "float32 product, TFLOP/s": 45.8,
    "step, launches": 967,
    "step, ms of matrix products": 17.1,
    "reduced step, ms of matrix products": 6.1,
    "step, ms of element-wise": 4.7,
    "step, ms between launches": 1.4,
    "step, ms of waiting for the host": 1.6,
    "reduced step, ms of waiting for the host": 2.9,
}
# Estimated from counts of instructions and bytes for an H100: of the kernels in tiles as they were first written, then
# with loads before stores, slices by multiprocessors, prefetching and the other changes that need no wgmma.
PREDICTED = {
    "step, ms": "14 to 15, then 10",
    "step pipelined, ms": "9.5 to 12.5, then 7 to 7.5",
    "step enqueued, ms": "8 to 10",
    "step, ms of networks in tiles": "5 to 6",
    "step, ms of gradients of weights": "2.6 to 3.2, then 2",
    "fast 131072, ms": "12 to 15",
    "bunny_train, s": "42 with a restored cache",
}


def collect(work: Path, stages: Sequence[tuple[str, str, int, int]]) -> dict[str, Any]:
    """Stages (name, status, seconds, limit), logs and results, as far as they exist.

    A file counts only if its stage is among these and succeeded.
    """
    logs = {name: _log(work / "logs" / f"{name}.log", is_whole=status != "0") for name, status, *_ in stages}
    paths = {name: work / f"{name}.json" for name in MEASURED}
    paths |= {name: work / "runs" / name / "report" / "metrics.json" for name in TRAINED}
    succeeded = {name for name, status, *_ in stages if status == "0"}
    measured = {name: found for name, path in paths.items() if name in succeeded and (found := _read(path))}
    seconds = {f"{name}, s": taken for name, status, taken, _ in stages if name.endswith("_train") and status == "0"}
    return {"stages": stages, "measured": measured, "figures": figures(measured) | seconds, "logs": logs}


def figures(measured: dict[str, Any]) -> dict[str, float]:
    """The values with targets, predicted or measured before, by name; missing ones are omitted."""
    found: dict[str, float] = {}
    steps, peer, traces = measured.get("steps"), measured.get("peer"), measured.get("trace", {})
    for recipe, stage in (("", "steps"), ("womask ", "steps_womask")):
        for mode, named in (("float32", f"{recipe}step"), ("reduced", f"reduced {recipe}step")):
            if stage in measured:
                row = measured[stage][mode]
                found |= {f"{named}, ms": 1e3 * row["seconds"], f"{named} pipelined, ms": 1e3 * row["pipelined"]}
                found[f"{named} enqueued, ms"] = 1e3 * row["enqueued"]
    if steps:
        found |= {"pool, MiB": steps["float32"]["pool_mib"], "float32 product, TFLOP/s": steps["rate"] / 1e12}
        found["share of the GPU's float32 rate"] = steps["share"]
    if peer:
        found["published step, ms"] = 1e3 * peer["seconds"]
        found["published reduced step, ms"] = 1e3 * peer["tf32_seconds"]
        found["published memory, MiB"] = peer["peak_mib"]
    if steps and peer:
        found["step / published"] = found["step, ms"] / found["published step, ms"]
        found["reduced step / published"] = found["reduced step, ms"] / found["published reduced step, ms"]
        if peer["peak_mib"]:
            found["memory / published"] = found["pool, MiB"] / peer["peak_mib"]
    for name, mode in (("step", "float32"), ("reduced step", "reduced")):
        found |= {f"{name}, {key}": value for key, value in traces.get(mode, {}).get("figures", {}).items()}
    found |= {f"fast {row['samples']}, ms": 1e3 * row["seconds"] for row in measured.get("fast", {}).get("fast", [])}
    evaluated = {f"{name} {key}": measured.get(name, {}).get(key) for name, key in TRAINED.items()}
    return found | {name: value for name, value in evaluated.items() if value is not None}


def tables(found: dict[str, Any]) -> str:
    """Stages, figures beside predictions and those of before, targets, kernels, the host's functions in Markdown."""
    values, measured = found["figures"], found["measured"]
    stages = [(*stage, _last(found["logs"][stage[0]])) for stage in found["stages"]]
    names = dict.fromkeys((*PREDICTED, *BEFORE, *values))
    listed = [(name, BEFORE.get(name), PREDICTED.get(name), values.get(name)) for name in names]
    targets = [
        (f"{name} {sign} {bound}", values.get(name), _is_met(values.get(name), sign, bound))
        for name, sign, bound in TARGETS
    ]
    parts = [
        measured.get("steps", {}).get("device", ""),
        table(("stage", "status (124: at its limit)", "seconds", "limit", "last line"), stages),
        table(("figure", "before", "predicted", "found"), listed),
        table(("target", "found", "reached"), targets),
        *(
            table((f"{what} of a {mode} step", "launches", "ms"), traced.get(what, [])[:KERNELS])
            for mode, traced in measured.get("trace", {}).items()
            for what in ("groups", "kernels")
        ),
        table(("host, float32 step", "calls", "ms"), measured.get("steps", {}).get("float32", {}).get("host", [])),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _is_met(value: float | None, sign: str, bound: float) -> str:
    return "yes" if value is not None and (value <= bound if sign == "<=" else value >= bound) else "no"


def _last(lines: Sequence[str]) -> str:
    """The last line of a log with a word in it."""
    return next((line.strip()[:100] for line in reversed(lines) if re.search(r"[a-z]{2}", line)), "")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _log(path: Path, *, is_whole: bool) -> list[str]:
    """The last lines of a log, and of one that failed the first ones, too."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    if not is_whole or len(lines) <= FIRST_LINES + LAST_LINES:
        return lines if is_whole else lines[-LAST_LINES:]
    return [*lines[:FIRST_LINES], f"[{len(lines) - FIRST_LINES - LAST_LINES} lines]", *lines[-LAST_LINES:]]


def write(work: Path, out: Path, stages: Sequence[tuple[str, str, int, int]]) -> None:
    """Write results.json and results.md from what the stages left in `work`."""
    found = collect(work, stages)
    (out / "results.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    (out / "results.md").write_text(tables(found), encoding="utf-8")
