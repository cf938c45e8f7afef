"""Precompiled headers of the C++ library and of Jittor: two thirds of the compilation time of an operation.

If a precompiled header does not match the flags or the machine, GCC reads the source header in the same folder.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from models.machine import isa

# The headers that Jittor's own headers include.
HEADERS = (
    *("algorithm", "chrono", "cmath", "cstring", "fstream", "functional", "iomanip", "iostream", "limits", "map"),
    *("memory", "mutex", "queue", "random", "set", "sstream", "string", "thread", "unordered_map", "unordered_set"),
    "vector",
)
# Jittor's headers that every operation includes. The macro JIT, which each operation defines, changes two of them.
OPERATION_HEADERS = ("var.h", "op.h", "fused_op.h", "ops/op_register.h")
OPERATION_MACRO = "-DJIT"
# The flags that Jittor 1.3.11 passes to the compiler; -march=native only on x86-64.
JITTOR_FLAGS = ("-Wall", "-Wno-unknown-pragmas", "-std=c++14", "-fPIC", "-march=native", "-fdiagnostics-color=always")
# Jittor's own files process a graph of small objects: -O1 is as fast as -O2 there and compiles faster.
CORE_OPTIMISATION = "-O1"


def common_flags() -> tuple[str, ...]:
    """The flags under which Jittor compiles itself and every operation."""
    given = JITTOR_FLAGS if isa.level().march else tuple(flag for flag in JITTOR_FLAGS if flag != "-march=native")
    return (*given, CORE_OPTIMISATION, *isa.core_flags())


def variants() -> dict[str, tuple[str, ...]]:
    """The additional flags of Jittor's own files and of operations.

    Jittor compiles operations with -g; GCC accepts a precompiled header only if it was compiled with -g as well.
    """
    return {"core": (), "operations": (*operation_flags(), "-fopenmp", "-g")}


def operation_flags() -> tuple[str, ...]:
    """The flags of operations that the program passes to Jittor."""
    return (*isa.operation_flags(), OPERATION_MACRO)


def jittor_sources() -> Path:
    """The folder of Jittor's headers, found without importing Jittor; raises ImportError if it is not installed."""
    found = find_spec("jittor")
    if found is None or found.origin is None:
        raise ImportError("Jittor is not installed")
    return Path(found.origin).resolve().parent / "src"


def include_flag(compiler: str) -> str:
    """The flag that makes `compiler` include the header, which is compiled first if needed.

    Returns "" if that is impossible: a compiler other than GCC, a home that is not writable or has a space in its path.
    """
    if not Path(compiler).name.startswith("g++"):
        return ""
    text = "".join(f"#include <{name}>\n" for name in HEADERS) + isa.VECTOR_FUNCTIONS
    text += "#ifdef JIT\n" + "".join(f'#include "{name}"\n' for name in OPERATION_HEADERS) + "#endif\n"
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        sources = jittor_sources()
        known = (version, text, common_flags(), variants(), str(sources), importlib.metadata.version("jittor"))
        key = hashlib.sha256(repr(known).encode()).hexdigest()[:16]
        folder = Path.home() / ".cache" / "jittor" / f"headers-{key}"
        if not folder.is_dir():
            _build(compiler, text, sources, folder)
    except (OSError, RuntimeError, ImportError, subprocess.SubprocessError):
        return ""
    return "" if " " in str(folder) else f"-include {folder}/prefix.h"


def _build(compiler: str, text: str, sources: Path, folder: Path) -> None:
    """Compile all variants of the header in parallel into `folder`, which is created atomically."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        header, compiled = scratch / "prefix.h", scratch / "prefix.h.gch"  # where GCC looks for it
        header.write_text(text, encoding="utf-8")
        compiled.mkdir()
        processes = [
            subprocess.Popen(
                [compiler, *common_flags(), *flags, f"-I{sources}", "-x", "c++-header", header, "-o", compiled / name]
            )
            for name, flags in variants().items()
        ]
        statuses = [process.wait() for process in processes]  # all end before the folder may be removed
        if any(statuses):
            raise RuntimeError(f"{compiler} cannot compile {header}")
        os.rename(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
