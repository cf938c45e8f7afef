"""Collect the results of benchmarks/gpu.sh into one file and one table: `python -m benchmarks.gpu_report FOLDER`."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

# Stages that leave a JSON file; of those that train, what is read from it.
TRAINED = {
    "demo": "chamfer",
    "bunny": "chamfer",
    "bunny_40s": "chamfer",
    "lego": "psnr",
    "gaussians": "psnr",
    "demo_tf32": "chamfer",
}
MEASURED = ("steps", "peer", "tf32", "sweep", "flat", *TRAINED)
LAST_LINES = 40  # of each log
KERNELS, NAME_LENGTH = 20, 120  # shown of those with the longest times, and of their names
# Targets for a GPU, by the name of the value.
TARGETS = (
    ("share of the GPU's float32 rate", "share", ">=", 0.6),
    ("step against the published code", "step / published", "<=", 0.5),
    ("step in TF32 against the published code in TF32", "TF32 step / published", "<=", 0.35),
    ("memory against the published code", "memory / published", "<=", 0.25),
    ("Chamfer distance of the bunny after 40 s", "bunny_40s chamfer", "<=", 0.0065),
    ("PSNR of lego's test views, dB", "lego psnr", ">=", 28.0),
)


def collect(folder: Path) -> dict[str, Any]:
    """Stages, logs and results, as far as they exist.

    A file counts only if its stage belongs to this run, and a result only if that stage succeeded.
    """
    stages = []
    if (folder / "stages.csv").is_file():
        with open(folder / "stages.csv", encoding="utf-8", newline="") as file:
            names = ("name", "status", "seconds", "limit")
            stages = [dict(zip(names, row, strict=True)) for row in csv.reader(file)]
    logs = {stage["name"]: _tail(folder / f"{stage['name']}.log") for stage in stages}
    ran = [name for name in MEASURED if name in logs]
    measured = {name: found for name in ran if (found := _read(folder / f"{name}.json")) is not None}
    well = {stage["name"] for stage in stages if stage["status"] == "0"}
    found = figures({name: value for name, value in measured.items() if name in well})
    kernels = kernel_times(folder / "kernels.csv") if "kernels" in logs else []
    return {"stages": stages, "measured": measured, "figures": found, "kernels": kernels, "logs": logs}


def figures(measured: dict[str, Any]) -> dict[str, float]:
    """The values with targets, by name; missing ones are omitted."""
    found: dict[str, float] = {}
    first = next(iter(measured.get("steps", {}).get("steps", [])), None)
    peer = measured.get("peer", {}).get("peer")
    if first:
        found |= {"step, ms": 1e3 * first["seconds"], "pool, MiB": first["pool_mib"], "share": first["share"]}
    if first and peer:
        found["step / published"] = first["seconds"] / peer["float32_seconds"]
        found["memory / published"] = first["pool_mib"] / peer["peak_mib"]
    reduced = next(iter(measured.get("tf32", {}).get("tf32", [])), None)
    if reduced and peer:
        found["TF32 step / published"] = reduced["seconds"] / peer["tf32_seconds"]
    for name, key in TRAINED.items():
        if (value := _number(measured.get(name), key)) is not None:
            found[f"{name} {key}"] = value
    return found


def kernel_times(path: Path) -> list[tuple[str, int, int]]:
    """Name, launches and nanoseconds of each kernel in Nsight Compute's file, the longest first."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    rows = [row for row in csv.DictReader(line for line in lines if line.startswith('"')) if row.get("Metric Value")]
    launches = Counter(row["Kernel Name"] for row in rows)
    spent: Counter[str] = Counter()
    for row in rows:
        spent[row["Kernel Name"]] += round(float(row["Metric Value"].replace(",", "")))
    return [(name, launches[name], total) for name, total in spent.most_common()]


def table(found: dict[str, Any]) -> str:
    """Stages, figures, targets and kernels in Markdown."""
    lines = ["| stage | status | seconds | limit |", "|---|---|---|---|"]
    lines += [f"| {s['name']} | {s['status']} | {s['seconds']} | {s['limit']} |" for s in found["stages"]]
    lines += ["", "| figure | value |", "|---|---|"]
    lines += [f"| {name} | {value:.4g} |" for name, value in found["figures"].items()]
    lines += ["", "| target | found | reached |", "|---|---|---|"]
    for words, name, sign, bound in TARGETS:
        value = found["figures"].get(name)
        is_reached = value is not None and (value <= bound if sign == "<=" else value >= bound)
        shown = "not measured" if value is None else f"{value:.4g}"
        lines.append(f"| {words} {sign} {bound} | {shown} | {'yes' if is_reached else 'no'} |")
    if found["kernels"]:
        lines += ["", "| kernel | launches | ms |", "|---|---|---|"]
        shown_kernels = found["kernels"][:KERNELS]
        lines += [f"| {name[:NAME_LENGTH]} | {count} | {1e-6 * total:.3f} |" for name, count, total in shown_kernels]
    return "\n".join(lines) + "\n"


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


def _tail(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:] if path.is_file() else []


def main(folder: Path) -> None:
    """Write results.json and results.md, and print the table."""
    found = collect(folder)
    (folder / "results.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    (folder / "results.md").write_text(table(found), encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
