"""Time single kernels without Jittor: `python -m benchmarks.gpu_kernels DEVICE FOLDER [--build]`.

Compiles the programs of benchmarks/kernels into FOLDER, runs them, and writes what they print to FOLDER/kernels.json.
With the CUDA toolkit on a GPU; on "cpu" with g++ and the emulation of the tests, where times are meaningless.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data.errors import UserError
from models.machine import backend, toolchain

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "benchmarks" / "kernels").glob("*.cu"))
CSRC = "models/ops/csrc"
INCLUDED = tuple(f"-I{ROOT / name}" for name in (CSRC, f"{CSRC}/cuda", f"{CSRC}/both", "benchmarks/kernels"))
NVCC_FLAGS = ("-std=c++17", "-O3", "--extended-lambda", "-cudart", "static", "-diag-suppress", "20050")
EMULATION_FLAGS = ("-x", "c++", "-std=c++17", "-O1", "-w", "-ffp-contract=off", "-include", "tests/cuda_emulation.h")


def command(source: Path, program: Path, device: str) -> tuple[str, ...]:
    """The command that compiles a benchmark for a device; raises UserError if there is no toolkit for it."""
    if device == "cpu":
        return toolchain.compiler(), *EMULATION_FLAGS, *INCLUDED, str(source), "-o", str(program)
    found = backend.cuda_ready(0)
    if found.home is None:
        raise UserError(found.reason)
    include, libraries = found.home.folder / "include", found.home.folder / "lib64"
    versioned = (libraries / "libcublas.so").resolve().parent  # the home has names without versions, for linking
    rpath = f"-Xlinker=--disable-new-dtags,-rpath,{versioned}"  # also for what cuBLAS needs
    links = (f"-I{include}", f"-L{libraries}", rpath, "-lcublas")
    return found.home.nvcc, *NVCC_FLAGS, *INCLUDED, str(source), "-o", str(program), *links


def build(folder: Path, device: str) -> None:
    """Compile all benchmarks at the same time; raises UserError with the message of the first that fails."""
    started = []
    for source in SOURCES:
        program = folder / source.stem
        words = command(source, program, device)
        done = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append((source, done))
    for source, process in started:
        output, _ = process.communicate()
        if process.returncode:
            raise UserError(f"{source.name} cannot be compiled: {output[-2000:]}")


def measure(folder: Path) -> list[dict[str, Any]]:
    """The lines of all programs; one that fails loses only its own, and its message is a line."""
    rows: list[dict[str, Any]] = []
    for source in SOURCES:
        done = subprocess.run([folder / source.stem], capture_output=True, text=True, check=False)
        rows += [json.loads(line) for line in done.stdout.splitlines()]
        if done.returncode:
            words = (done.stderr.strip() or "no message").splitlines()[-1]
            rows.append({"benchmark": source.stem, "failed": f"status {done.returncode}: {words}"})
    return rows


def main(arguments: Sequence[str]) -> int:
    """Compile where that was not done, and measure unless only --build is asked for; 1 if a program fails."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu_kernels.py", description=__doc__)
    parser.add_argument("device", choices=("cuda", "cpu"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", action="store_true", help="compile only")
    given = parser.parse_args(arguments)
    programs = given.folder / "kernels"
    programs.mkdir(parents=True, exist_ok=True)
    if given.build or not all((programs / source.stem).is_file() for source in SOURCES):
        build(programs, given.device)
    if given.build:
        return 0
    rows = measure(programs)
    (given.folder / "kernels.json").write_text(json.dumps({"kernels": rows}, indent=1), encoding="utf-8")
    for row in rows:
        print(json.dumps(row))
    return 1 if any("failed" in row for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(f"error: {error}")
