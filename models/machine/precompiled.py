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

# What Jittor's own headers include, and with them every file that it compiles.
HEADERS = (
    *("algorithm", "chrono", "cmath", "cstring", "fstream", "functional", "iomanip", "iostream", "limits", "map"),
    *("memory", "mutex", "queue", "random", "set", "sstream", "string", "thread", "unordered_map", "unordered_set"),
    "vector",
)
# The flags under which Jittor 1.3.11 compiles itself, given `CORE_FLAGS`, and operations, given `OPERATION_FLAGS` too.
COMMON_FLAGS = ("-Wall", "-Wno-unknown-pragmas", "-std=c++14", "-fPIC", "-march=native", "-fdiagnostics-color=always")
# Jittor's own files spend their time on a graph of small objects: -O1 costs a step nothing and compiles faster.
CORE_FLAGS = ("-O1",)
OPERATION_FLAGS = ("-Ofast",)
VARIANTS = {"core": CORE_FLAGS, "operations": (*CORE_FLAGS, *OPERATION_FLAGS, "-fopenmp")}


def include_flag(compiler: str) -> str:
    """The flag that makes `compiler` start with the header, compiling it first where that has not been done.

    Returns "" where it cannot be: another compiler than GCC, a home that cannot be written to or has a space in it.
    """
    if not Path(compiler).name.startswith("g++"):
        return ""
    text = "".join(f"#include <{name}>\n" for name in HEADERS)
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        key = hashlib.sha256(repr((version, text, COMMON_FLAGS, VARIANTS)).encode()).hexdigest()[:16]
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
            subprocess.Popen([compiler, *COMMON_FLAGS, *flags, "-x", "c++-header", header, "-o", compiled / name])
            for name, flags in VARIANTS.items()
        ]
        statuses = [process.wait() for process in processes]  # all have ended before the folder may go
        if any(statuses):
            raise RuntimeError(f"{compiler} cannot compile {header}")
        os.rename(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
