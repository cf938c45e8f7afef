"""Run the GPU tests without a GPU: `python -m benchmarks.cuda_check_tests`; see `--help`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cuda_check_toolkit import completed, found_compiler, simulated_gpu
from benchmarks.gpu_stages import TESTS
from benchmarks.shapes import ROOT
from models.machine import backend
from models.machine.cuda import trial
from models.machine.cuda.facts import Toolkit
from models.machine.toolchain import jittor_home

DESCRIPTION = """
Runs the tests of the stage `tests` of gpu.sh, and the doctor's operations in both forms, with the simulated GPU. The
operations are not compiled but replaced by empty ones, so that it takes minutes and all values are wrong: tests fail by
their assertions. Other failures are reported and give exit status 1: missing packages, GPU pointers read on the host,
inputs that Jittor cannot process.
"""
CAPABILITY = 90
VARIABLE = "PRETEND_CAPABILITY"  # set in the process that runs them
# Replaces nvcc: a library with an empty entry point, under the name that Jittor expects.
EMPTY = """#!/bin/bash
while [ $# -gt 0 ]; do
    case $1 in -o) out=$2; shift ;; *.cc) [ -n "$source" ] || source=$1 ;; esac
    shift
done
name=$(grep -oE '[A-Za-z0-9_]+Op::jit_run[(][)]' "$source" | head -n 1)
name=${name%%::*}
echo "void _ZN6jittor${#name}${name}7jit_runEv(void *op) {}" > "$out.c" && gcc -w -shared -fPIC "$out.c" -o "$out"
"""
OF_VALUES = (AssertionError, ZeroDivisionError, FileNotFoundError)  # what wrong values may lead to


class Failures:
    """A plugin of pytest that records failures other than wrong values."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """Called by pytest after each part of a test."""
        error = call.excinfo and call.excinfo.value
        if error and not isinstance(error, OF_VALUES) and call.excinfo.typename not in ("Skipped", "ExceptionGroup"):
            self.found.append(f"{item.nodeid}: {call.excinfo.typename}: {error}".splitlines()[0])


def main(arguments: Sequence[str]) -> int:
    """Run and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks/cuda_check_tests.py", description=DESCRIPTION)
    parser.add_argument(
        "tests", nargs="*", metavar="NAME", help="test modules without test_ (default: those of gpu.sh)"
    )
    given = parser.parse_args(arguments)
    if VARIABLE not in os.environ:
        return _with_simulated_gpu(arguments)
    with tempfile.TemporaryDirectory() as folder:
        _without_compiling(Path(folder))
        found = _of_tests(given.tests or TESTS) + _of_the_doctor()
    for line in found:
        print(f"WRONG  {line}")
    print("not well" if found else "all is well: what failed are values")
    return 1 if found else 0


def _with_simulated_gpu(arguments: Sequence[str]) -> int:
    """The same in a process with the simulated GPU."""
    cache = Path(jittor_home()) / ".cache" / "jittor"
    compiler = found_compiler()
    toolkit = completed(compiler, cache) if isinstance(compiler, Toolkit) else compiler
    if isinstance(toolkit, str):
        print(f"skipped: {toolkit}")
        return 0
    made = simulated_gpu(toolkit, [CAPABILITY], cache)
    paths = {"PYTHONPATH": str(ROOT / "tests"), "CUDA_VISIBLE_DEVICES": "0"}
    command = [sys.executable, "-m", "benchmarks.cuda_check_tests", *arguments]
    return subprocess.run(command, env=os.environ | made.environment | paths, cwd=ROOT, check=False).returncode


def _without_compiling(folder: Path) -> None:
    """Replace all operations by empty ones in `folder`."""
    backend.select("cuda")
    home = backend.cuda_ready(0).home
    trial.remember(home)  # it would be found that kernels do nothing
    from models.machine.backend import jt

    compiler = folder / "nvcc"
    compiler.write_text(EMPTY, encoding="utf-8")
    compiler.chmod(0o755)
    for part in ("jit", "obj_files"):
        (folder / part).mkdir()
    jt.flags.nvcc_path, jt.flags.cache_path = str(compiler), str(folder)


def _of_tests(names: Sequence[str]) -> list[str]:
    import pytest

    failures = Failures()
    files = [f"tests/test_{name}.py" for name in names]
    pytest.main(["--tb=no", "-p", "no:cacheprovider", "--no-summary", *files], plugins=[failures])
    return failures.found


def _of_the_doctor() -> list[str]:
    """The operations that the doctor cannot compute in both forms."""
    from models.doctor.operations import FAILED, operations

    return [f"{line.name}: {line.found}" for line in operations() if line.remedy == FAILED]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
