"""A toolkit of the real nvcc and pretended libraries, and a pretended driver, in a folder."""

from __future__ import annotations

import hashlib
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from models.machine.cuda.facts import HEADERS, LIBRARIES, Toolkit

SOURCES = Path(__file__).parent
FURTHER_TARGET = 80  # compiled for beside the card's own
# The functions that a header declares, by the word in front of their names.
DECLARED = {
    "cudart": ("cuda_runtime_api.h", r"CUDARTAPI\s+(cuda\w+)\s*\("),
    "cublas": ("cublas_api.h", r"CUBLASWINAPI\s+(cublas\w+)\s*\("),
    "cublasLt": ("cublasLt.h", r"CUBLASWINAPI\s+(cublasLt\w+)\s*\("),
    "curand": ("curand.h", r"CURANDAPI\s+(curand\w+)\s*\("),
}
DEFINED = re.compile(r"\b(cuda\w+)\([^;{]*\)\s*\{")  # in runtime.c
SCRIPT = """#!/bin/sh
# {nvcc}, which may compile for a second card beside each
case "$*" in
    *-gencode*) exec '{nvcc}' {more} "$@" ;;
    *) exec '{nvcc}' "$@" ;;
esac
"""


@dataclass(frozen=True)
class Pretended:
    """Where it lies."""

    toolkit: Path
    driver: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a process has to be started with to find it."""
        return {"CUDA_HOME": str(self.toolkit), "LD_LIBRARY_PATH": str(self.driver), "nvcc_path": ""}


def key(toolkit: Toolkit, codes: int) -> str:
    """A name for all that the contents follow from; `codes`: for how many capabilities is compiled, 1 or 2."""
    sources = [path.read_bytes() for path in sorted(SOURCES.iterdir()) if path.is_file()]
    parts = (toolkit.nvcc, toolkit.release, codes, sorted(toolkit.headers.items()), sources)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def build(toolkit: Toolkit, codes: int, folder: Path) -> Pretended:
    """Make both in `folder`; raises CalledProcessError where a C compiler fails."""
    made = Pretended(folder / "toolkit", folder / "driver")
    for part in (made.toolkit / "bin", made.toolkit / "include", made.toolkit / "lib64", made.driver):
        part.mkdir(parents=True)
    for name in HEADERS:
        for entry in sorted(Path(toolkit.headers[name]).parent.iterdir()):
            link = made.toolkit / "include" / entry.name
            if not link.exists():
                link.symlink_to(entry)
    script = made.toolkit / "bin" / "nvcc"
    more = f"-gencode arch=compute_{FURTHER_TARGET},code=sm_{FURTHER_TARGET}" if codes > 1 else ""
    script.write_text(SCRIPT.format(nvcc=toolkit.nvcc, more=more), encoding="utf-8")
    script.chmod(0o755)
    for name in LIBRARIES:
        _library(name, made.toolkit)
    _compile(made.driver / "libcuda.so.1", [SOURCES / "driver.c"], "libcuda.so.1")
    (made.driver / "libcuda.so").symlink_to("libcuda.so.1")
    return made


def _library(name: str, toolkit: Path) -> None:
    """A library of functions that do nothing, as many as its header declares."""
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
    """A shared library of C sources."""
    command = ["gcc", "-w", "-O1", "-shared", "-fPIC", *flags, *sources, "-o", library, f"-Wl,-soname,{name}"]
    subprocess.run(command, check=True)
