"""The C++ library's headers, compiled once for all that Jittor compiles: reading them is half of an operation's time.

A precompiled header is an offer: where it fits neither the flags nor the machine, GCC reads the text beside it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from models.machine import isa

# What Jittor's own headers include, and with them every file that it compiles.
HEADERS = (
    *("algorithm", "chrono", "cmath", "cstring", "fstream", "functional", "iomanip", "iostream", "limits", "map"),
    *("memory", "mutex", "queue", "random", "set", "sstream", "string", "thread", "unordered_map", "unordered_set"),
    "vector",
)
# The flags that Jittor 1.3.11 gives the compiler by itself; -march=native only on x86-64.
JITTOR_FLAGS = ("-Wall", "-Wno-unknown-pragmas", "-std=c++14", "-fPIC", "-march=native", "-fdiagnostics-color=always")
# Jittor's own files spend their time on a graph of small objects: -O1 costs a step nothing and compiles faster.
CORE_OPTIMISATION = "-O1"


def common_flags() -> tuple[str, ...]:
    """The flags under which Jittor compiles itself and every operation."""
    given = JITTOR_FLAGS if isa.level().march else tuple(flag for flag in JITTOR_FLAGS if flag != "-march=native")
    return (*given, CORE_OPTIMISATION, *isa.core_flags())


def variants() -> dict[str, tuple[str, ...]]:
    """The flags beside `common_flags` under which a file may be compiled: Jittor's own, or an operation."""
    return {"core": (), "operations": (*isa.operation_flags(), "-fopenmp")}


def include_flag(compiler: str) -> str:
    """The flag that makes `compiler` start with the header, compiling it first where that has not been done.

    Returns "" where it cannot be: another compiler than GCC, a home that cannot be written to or has a space in it.
    """
    if not Path(compiler).name.startswith("g++"):
        return ""
    text = "".join(f"#include <{name}>\n" for name in HEADERS) + isa.VECTOR_FUNCTIONS
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        key = hashlib.sha256(repr((version, text, common_flags(), variants())).encode()).hexdigest()[:16]
        folder = Path.home() / ".cache" / "jittor" / f"headers-{key}"
        if not folder.is_dir():
            _build(compiler, text, folder)
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return ""
    return "" if " " in str(folder) else f"-include {folder}/prefix.h"


def _build(compiler: str, text: str, folder: Path) -> None:
    """Compile the header into `folder`, which appears when it is complete; all variants at the same time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        header, compiled = scratch / "prefix.h", scratch / "prefix.h.gch"  # where GCC looks for it
        header.write_text(text, encoding="utf-8")
        compiled.mkdir()
        processes = [
            subprocess.Popen([compiler, *common_flags(), *flags, "-x", "c++-header", header, "-o", compiled / name])
            for name, flags in variants().items()
        ]
        statuses = [process.wait() for process in processes]  # all have ended before the folder may go
        if any(statuses):
            raise RuntimeError(f"{compiler} cannot compile {header}")
        os.rename(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
