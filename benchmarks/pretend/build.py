"""Build a toolkit of the real nvcc with simulated libraries, and a simulated driver, in a folder."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.machine.cuda.facts import HEADERS, LIBRARIES, Toolkit

SOURCES = Path(__file__).parent
COMPILER = "gcc"
# The functions that a header declares, by the word in front of their names.
DECLARED = {
    "cudart": ("cuda_runtime_api.h", r"CUDARTAPI\s+(cuda\w+)\s*\("),
    "cublas": ("cublas_api.h", r"CUBLASWINAPI\s+(cublas\w+)\s*\("),
    "cublasLt": ("cublasLt.h", r"CUBLASWINAPI\s+(cublasLt\w+)\s*\("),
    "curand": ("curand.h", r"CURANDAPI\s+(curand\w+)\s*\("),
}
DEFINED = re.compile(r"\b(cuda\w+)\([^;{]*\)\s*\{")  # in runtime.c
SCRIPT = """#!/bin/sh
# {nvcc}, which may compile for other GPUs beside each
case "$*" in
    *-gencode*) exec '{nvcc}' {more} "$@" ;;
    *) exec '{nvcc}' "$@" ;;
esac
"""


@dataclass(frozen=True)
class Pretended:
    """Paths of the simulated toolkit and driver."""

    folder: Path
    capability: int = 90  # of the GPU

    @property
    def toolkit(self) -> Path:
        """The folder of the simulated CUDA toolkit."""
        return self.folder / "toolkit"

    @property
    def driver(self) -> Path:
        """The folder of the driver's library."""
        return self.folder / "driver"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which a process finds it."""
        where = {"CUDA_HOME": str(self.toolkit), "LD_LIBRARY_PATH": str(self.driver), "nvcc_path": ""}
        return where | {"PRETEND_CAPABILITY": str(self.capability)}


def key(toolkit: Toolkit, codes: Sequence[int]) -> str:
    """A name that depends on everything that determines compiled code: the compiler, its headers and the capabilities.

    The simulated libraries are not included, because programs contain nothing of them; `renew` keeps them up to date.
    """
    parts = (toolkit.nvcc, toolkit.release, tuple(codes), sorted(toolkit.headers.items()), SCRIPT)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def build(toolkit: Toolkit, codes: Sequence[int], folder: Path) -> None:
    """Build both in `folder`, for a GPU of the last of `codes`; raises CalledProcessError if a C compiler fails."""
    made = Pretended(folder)
    for part in (made.toolkit / "bin", made.toolkit / "include", made.toolkit / "lib64", made.driver):
        part.mkdir(parents=True)
    for name in HEADERS:
        for entry in sorted(Path(toolkit.headers[name]).parent.iterdir()):
            link = made.toolkit / "include" / entry.name
            if not link.exists():
                link.symlink_to(entry)
    script = made.toolkit / "bin" / "nvcc"
    more = " ".join(f"-gencode arch=compute_{code},code=sm_{code}" for code in codes[:-1])
    script.write_text(SCRIPT.format(nvcc=toolkit.nvcc, more=more), encoding="utf-8")
    script.chmod(0o755)
    renew(made)


def renew(made: Pretended) -> None:
    """Rebuild the libraries if their sources have changed; a process that uses the old ones keeps them."""
    sources = [path.read_bytes() for path in sorted(SOURCES.iterdir()) if path.is_file()]
    digest = hashlib.sha256(repr(sources).encode()).hexdigest()
    stamp = made.folder / "sources"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return
    for name in LIBRARIES:
        _library(name, made.toolkit)
    _compile(made.driver / "libcuda.so.1", [SOURCES / "driver.c"], "libcuda.so.1")
    plain = made.driver / "libcuda.so"
    if not plain.is_symlink():
        plain.symlink_to("libcuda.so.1")
    stamp.write_text(digest, encoding="utf-8")


def _library(name: str, toolkit: Path) -> None:
    """A library of empty functions, one for each function that its header declares."""
    header, pattern = DECLARED[name]
    text = (toolkit / "include" / header).read_text(encoding="utf-8", errors="replace")
    sources = [SOURCES / "runtime.c"] if name == "cudart" else []
    written = set(DEFINED.findall(sources[0].read_text(encoding="utf-8"))) if sources else set()
    generated = toolkit / "lib64" / f"{name}.c"
    lines = [f"int {function}() {{ return 0; }}" for function in sorted(set(re.findall(pattern, text)) - written)]
    generated.write_text("\n".join([*lines, ""]), encoding="utf-8")
    flags = [f"-I{toolkit / 'include'}"] if sources else []
    _compile(toolkit / "lib64" / f"lib{name}.so", [*sources, generated], f"lib{name}.so", *flags)


def _compile(library: Path, sources: list[Path], name: str, *flags: str) -> None:
    """Compile a shared library from C sources."""
    made = library.with_name(f"new-{os.getpid()}-{library.name}")
    command = [COMPILER, "-w", "-O1", "-shared", "-fPIC", *flags, *sources, "-o", made, f"-Wl,-soname,{name}"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    os.replace(made, library)
