"""Collect the results of benchmarks/gpu.sh into one file and one table: `python -m benchmarks.gpu_report WORK OUT`."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import gpu_launches, gpu_trace

# Of the stages that evaluate a training, the value that is read.
TRAINED = {
    **{"bunny": "chamfer", "bunny_full": "chamfer", "demo": "chamfer", "demo_tf32": "chamfer"},
    **{"lego": "psnr", "gaussians": "psnr"},
}
# Stages that leave a JSON file.
MEASURED = ("steps", "peer", "trace", "trace_tf32", "ncu", "fast", "kernels", "sweep", "flat")
FIRST_LINES, LAST_LINES = 200, 40  # of each log: of one that failed both, else the last ones
KERNELS, NAME_LENGTH = 30, 100  # shown of those with the longest times, and of their names
# Targets for a GPU, by the name of the value.
TARGETS = (
    ("share", "share of the GPU's float32 rate", ">=", 0.6),
    ("step / published", "step against the published code", "<=", 0.68),
    ("TF32 step / published", "step in TF32 against the published code in TF32", "<=", 0.45),
    ("memory / published", "memory against the published code", "<=", 0.25),
    ("bunny chamfer", "Chamfer distance of the bunny after 50 s", "<=", 0.0010),
    ("lego psnr", "PSNR of lego's test views, dB", ">=", 28.0),
)
# Of an H100, unless stated otherwise: measured at commit 6602eb00, or estimated for now from counted instructions,
# launches and operations (docs/performance.md).
PREDICTED = {
    "step, ms": "about 25; 34.3 (measured) before the changes",
    "TF32 step, ms": "11 to 12; 23.3 (measured, H200) before the changes",
    "step without masks, ms": "40; 52.9 (measured) before the changes",
    "small step, ms": "6.4 (measured) before the changes",
    "pool, MiB": "871 (measured) before the changes",
    "step, launches": "867 (counted in emulation)",
    "step, launches of matrix products": "390 (counted in emulation)",
    "step, ms of matrix products": "14.0 at the rate of a large product, 17.7 with waves that are not full",
    "TF32 step, ms of matrix products": "10 less than in float32 if the rest is the same",
    "step, ms of element-wise": "2 to 3; 6.5 before the changes",
    "step, ms of column sums": "below 1.9",
    "step, ms between launches": "0.8; 1.1 before the changes",
    "step, ms of waiting for the host": "0.1; 1.4 before the changes",
    "softplus: each_value / division": "0.35 (46 of 130 instructions were expected, 19 are counted)",
    "slope: each_value / division": "0.15 (17 of 113 instructions were expected, 10 are counted)",
    "skip in TF32: stride 220 / 217": "below 1, with the others 5 ms a step",
    "hidden: 16,384 / 13,312 rows": "1.0, as many waves (1.23 if the time follows the rows)",
    "weight gradient: best split / one product": "below 0.5",
    "fast 8192, ms": "4.8 (measured, with 4 levels at first)",
    "fast 65536, ms": "6 to 8",
    "fast 262144, ms": "6 to 8",
}
ROWS, DIVIDED = "13312x256", "a division per element"
# Quotients of two rows of the stand-alone benchmarks, each (benchmark, shape, variant).
RATIOS = {
    "softplus: each_value / division": (("softplus", ROWS, "each_value"), ("softplus", ROWS, DIVIDED)),
    "slope: each_value / division": (("slope", ROWS, "each_value"), ("slope", ROWS, DIVIDED)),
    "skip in TF32: stride 220 / 217": (
        ("product", "13312 rows", "after the skip, stride 220, TF32"),
        ("product", "13312 rows", "after the skip, stride 217, TF32"),
    ),
    "hidden: 16,384 / 13,312 rows": (("product", "16384 rows", "hidden"), ("product", "13312 rows", "hidden")),
}
SPLIT = "weight gradient: best split / one product"


def collect(work: Path) -> dict[str, Any]:
    """Stages, logs and results, as far as they exist.

    A file counts only if its stage belongs to this run, and a result only if that stage succeeded.
    """
    stages = []
    if (work / "stages.csv").is_file():
        with open(work / "stages.csv", encoding="utf-8", newline="") as file:
            names = ("name", "status", "seconds", "limit")
            stages = [dict(zip(names, row, strict=True)) for row in csv.reader(file)]
    logs = {s["name"]: _log(work / "logs" / f"{s['name']}.log", is_whole=s["status"] != "0") for s in stages}
    paths = {name: work / f"{name}.json" for name in MEASURED}
    paths |= {name: work / "runs" / name / "report" / "metrics.json" for name in TRAINED}
    measured = {name: found for name, path in paths.items() if name in logs and (found := _read(path)) is not None}
    succeeded = {stage["name"] for stage in stages if stage["status"] == "0"}
    well = {name: found for name, found in measured.items() if name in succeeded}
    found, launches = figures(well), {}
    for name, (trace, steps) in recorded(work, well).items():
        found |= {f"{name}, {key}": value for key, value in gpu_launches.summary(trace, steps).items()}
        launches[f"kernels of a {name}"] = [asdict(one) for one in gpu_launches.spent(trace, steps, by_group=True)]
        launches[f"kernel of a {name}"] = [asdict(one) for one in gpu_launches.spent(trace, steps)]
    return {"stages": stages, "measured": measured, "figures": found, "launches": launches, "logs": logs}


def recorded(work: Path, measured: dict[str, Any]) -> dict[str, tuple[list[gpu_trace.Launch], int]]:
    """The launches of some steps, and how many steps they are: of CUPTI, or of Nsight Compute if that failed."""
    found = {}
    for name, stage in (("step", "trace"), ("TF32 step", "trace_tf32")):
        if steps := measured.get(stage, {}).get("traced_steps"):
            found[name] = gpu_trace.read(work / f"{stage}.csv"), steps
    if "step" not in found and (steps := measured.get("ncu", {}).get("profiled_steps")):
        found["step"] = gpu_launches.read_ncu(work / "ncu.csv"), steps
    return found


def figures(measured: dict[str, Any]) -> dict[str, float]:
    """The values with targets or predictions, by name; missing ones are omitted."""
    found: dict[str, float] = {}
    steps = measured.get("steps", {})
    peer = measured.get("peer", {}).get("peer")
    names = ("step, ms", "step without masks, ms", "small step, ms")
    found |= {name: 1e3 * row["seconds"] for name, row in zip(names, steps.get("steps", []), strict=False)}
    found |= {f"TF32 {name}": 1e3 * row["seconds"] for name, row in zip(names, steps.get("tf32", []), strict=False)}
    if first := next(iter(steps.get("steps", [])), None):
        found |= {"pool, MiB": first["pool_mib"], "share": first["share"]}
        if peer:
            found["step / published"] = first["seconds"] / peer["float32_seconds"]
            found["memory / published"] = first["pool_mib"] / peer["peak_mib"] if peer["peak_mib"] else float("nan")
            found["TF32 step / published"] = steps["tf32"][0]["seconds"] / peer["tf32_seconds"]
    found |= {f"fast {row['samples']}, ms": 1e3 * row["seconds"] for row in measured.get("fast", {}).get("fast", [])}
    for name, key in TRAINED.items():
        if (value := _number(measured.get(name), key)) is not None:
            found[f"{name} {key}"] = value
    return found | ratios(measured.get("kernels", {}).get("kernels", []))


def ratios(rows: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The quotients of RATIOS, and that of the best gradient of weights with a split depth."""
    times = {(row["benchmark"], row["shape"], row["variant"]): row["microseconds"] for row in rows if "variant" in row}
    found = {name: times[a] / times[b] for name, (a, b) in RATIOS.items() if a in times and b in times}
    gradients = {
        v: time for (*at, v), time in times.items() if at == ["weight gradient", "13312 rows"] and "TF32" not in v
    }
    if one := gradients.pop("one product", None):
        found[SPLIT] = min(gradients.values()) / one
    return found


def table(found: dict[str, Any]) -> str:
    """Stages, figures with their predictions, targets, kernels and stand-alone benchmarks in Markdown."""
    values, measured = found["figures"], found["measured"]
    stages = [(*stage.values(), _last(found["logs"][stage["name"]])) for stage in found["stages"]]
    predicted = [(name, words, _shown(values.get(name))) for name, words in PREDICTED.items()]
    listed = {*PREDICTED, *(name for name, *_ in TARGETS)}
    others = [(name, _shown(value)) for name, value in values.items() if name not in listed]
    parts = [
        measured.get("steps", {}).get("device", ""),
        _table(("stage", "status (124: at its limit)", "seconds", "limit", "last line"), stages),
        _table(("figure", "predicted, or measured before", "found"), predicted),
        _table(("other figure", "found"), others),
        _table(("target", "found", "reached"), [_target(values.get(name), *rest) for name, *rest in TARGETS]),
        *(_launch_table(heading, ones) for heading, ones in found["launches"].items()),
        _table(("benchmark", "shape", "variant", "µs", "rate", "difference from the first"), _benches(measured)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _last(lines: Sequence[str]) -> str:
    """The last line of a log with a word in it."""
    return next((line.strip()[:NAME_LENGTH] for line in reversed(lines) if re.search(r"[a-z]{2}", line)), "")


def _target(value: float | None, words: str, sign: str, bound: float) -> tuple[str, str, str]:
    is_reached = value is not None and (value <= bound if sign == "<=" else value >= bound)
    return f"{words} {sign} {bound}", _shown(value), "yes" if is_reached else "no"


def _launch_table(heading: str, ones: Sequence[dict[str, Any]]) -> str:
    whole = sum(one["milliseconds"] for one in ones)
    rows = []
    for one in ones[:KERNELS]:
        time = one["milliseconds"]
        rows.append((one["name"][:NAME_LENGTH], f"{one['launches']:.4g}", f"{time:.3f}", f"{time / whole:.1%}"))
    return _table((heading, "launches", "ms", "share"), rows)


def _benches(measured: dict[str, Any]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for one in measured.get("kernels", {}).get("kernels", []):
        name = (one["benchmark"], one.get("shape", ""), one.get("variant", one.get("failed")))
        shown = (
            (f"{one['microseconds']:.1f}", f"{one['rate']:.0f} {one['unit']}", one["error"])
            if "rate" in one
            else ("",) * 3
        )
        rows.append((*name, *shown))
    return rows


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown, "" without rows."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |" for row in lines) if rows else ""


def _shown(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4g}"


def _number(value: object, key: str) -> float | None:
    """The first number whose name begins with `key`, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name.lower().startswith(key) and isinstance(inner, int | float):
                return float(inner)
            if (found := _number(inner, key)) is not None:
                return found
    return None


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


def main(work: Path, out: Path) -> None:
    """Write results.json and results.md from what the stages left in `work`."""
    found = collect(work)
    (out / "results.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    (out / "results.md").write_text(table(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
