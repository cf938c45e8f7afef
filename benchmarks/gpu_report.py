"""Collect the results of benchmarks/gpu.sh into results.json and the tables of results.md."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import table

TRAINED = {"bunny": "chamfer", "bunny_full": "chamfer", "demo": "chamfer", "demo_tf32": "chamfer"}
TRAINED |= {"lego": "psnr", "gaussians": "psnr"}  # the value that is read of the evaluation of a training
MEASURED = ("steps", "peer", "trace", "trace_tf32", "fast", "kernels")  # stages that leave a JSON file
FIRST_LINES, LAST_LINES, KERNELS = 200, 40, 30  # of each log (of one that did not fail, the last ones); of kernels
# Targets for a GPU, by the name of the figure.
TARGETS = (
    ("share of the GPU's float32 rate", ">=", 0.6),
    ("step / published", "<=", 0.68),
    ("TF32 step / published", "<=", 0.45),
    ("memory / published", "<=", 0.25),
    ("bunny chamfer", "<=", 0.0010),
    ("lego psnr", ">=", 28.0),
)
# Measured on an H100 with 16 cores of a virtual machine.
BEFORE = {
    "step, ms": 29.6,
    "published step, ms": 53.5,
    "TF32 step, ms": 18.9,
    "published TF32 step, ms": 51.2,
    "step without masks, ms": 45.0,
    "TF32 step without masks, ms": 33.6,
    "small step, ms": 12.3,
    "pool, MiB": 873,
    "published memory, MiB": 3698,
    "float32 product, TFLOP/s": 45.8,
    "step, launches": 967,
    "step, launches of matrix products": 390,
    "step, launches of split-depth sums of cuBLAS": 100,
    "step, ms of matrix products": 17.1,
    "TF32 step, ms of matrix products": 6.1,
    "step, ms of element-wise": 4.7,
    "step, ms of column sums": 0.45,
    "step, ms between launches": 1.4,
    "step, ms of waiting for the host": 1.6,
    "TF32 step, ms of waiting for the host": 2.9,
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
    return {"stages": stages, "measured": measured, "figures": figures(measured), "logs": logs}


def figures(measured: dict[str, Any]) -> dict[str, float]:
    """The values with targets, or measured before, by name; missing ones are omitted."""
    found: dict[str, float] = {}
    steps, peer = measured.get("steps"), measured.get("peer")
    if steps:
        names = ("step, ms", "step without masks, ms", "small step, ms")
        found |= {name: 1e3 * row["seconds"] for name, row in zip(names, steps["steps"], strict=False)}
        found |= {f"TF32 {name}": 1e3 * row["seconds"] for name, row in zip(names, steps["tf32"], strict=False)}
        found |= {"pool, MiB": steps["steps"][0]["pool_mib"], "float32 product, TFLOP/s": steps["rate"] / 1e12}
        found["share of the GPU's float32 rate"] = steps["share"]
    if peer:
        found |= {"published step, ms": 1e3 * peer["seconds"], "published TF32 step, ms": 1e3 * peer["tf32_seconds"]}
        found["published memory, MiB"] = peer["peak_mib"]
    if steps and peer:
        found["step / published"] = found["step, ms"] / found["published step, ms"]
        found["TF32 step / published"] = found["TF32 step, ms"] / found["published TF32 step, ms"]
        if peer["peak_mib"]:
            found["memory / published"] = found["pool, MiB"] / peer["peak_mib"]
    for name, stage in (("step", "trace"), ("TF32 step", "trace_tf32")):
        found |= {f"{name}, {key}": value for key, value in measured.get(stage, {}).get("figures", {}).items()}
    found |= {f"fast {row['samples']}, ms": 1e3 * row["seconds"] for row in measured.get("fast", {}).get("fast", [])}
    evaluated = {f"{name} {key}": measured.get(name, {}).get(key) for name, key in TRAINED.items()}
    return found | {name: value for name, value in evaluated.items() if value is not None}


def tables(found: dict[str, Any]) -> str:
    """Stages, figures beside those of before, targets, kernels and stand-alone benchmarks in Markdown."""
    values, measured = found["figures"], found["measured"]
    stages = [(*stage, _last(found["logs"][stage[0]])) for stage in found["stages"]]
    shown = [(name, BEFORE.get(name), values.get(name)) for name in dict.fromkeys((*BEFORE, *values))]
    targets = [
        (f"{name} {sign} {bound}", values.get(name), _is_met(values.get(name), sign, bound))
        for name, sign, bound in TARGETS
    ]
    columns = ("benchmark", "shape", "variant", "microseconds", "rate", "unit", "error", "failed")
    benches = [[row.get(column, "") for column in columns] for row in measured.get("kernels", {}).get("kernels", [])]
    parts = [
        measured.get("steps", {}).get("device", ""),
        table(("stage", "status (124: at its limit)", "seconds", "limit", "last line"), stages),
        table(("figure", "before", "found"), shown),
        table(("target", "found", "reached"), targets),
        *(
            table((f"{what} of {stage}", "launches", "ms"), measured.get(stage, {}).get(what, [])[:KERNELS])
            for stage in ("trace", "trace_tf32")
            for what in ("groups", "kernels")
        ),
        table(columns, benches),
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
