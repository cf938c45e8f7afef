"""Compile every operation for CUDA without a GPU and read its machine code: `python -m benchmarks.cuda_check`.

Needs an `nvcc`; no driver, no Jittor on CUDA. Prints, for each kernel and capability, registers and spilled bytes
(reported by ptxas), and the number of instructions in its machine code, among them those of tensor cores. Exit status 1
if an operation does not compile or a kernel spills.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import models.ops
from data.errors import UserError
from models.ops.source import BOTH, CUDA, Source

CAPABILITIES = ("8.0", "9.0")
ON_HOST = "together.h"  # the source without kernels
INSTRUCTION = 16  # bytes, from capability 7.0 on
HMMA = 0x23C  # the low 12 bits of an instruction that multiplies fragments in float16
FLAGS = ("-std=c++17", "-O3", "--extended-lambda", "-diag-suppress", "20050,177,550", "-Xptxas", "-v", "-cubin")
_ENTRY = re.compile(r"^(?:template <.*>\n)?inline void (\w+)\(const (\w+) &", re.MULTILINE)
_COMPILED = re.compile(
    r"Compiling entry function '(\w+)' for .*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
    re.DOTALL,
)
_LENGTH = re.compile(r"\d+")
# What csrc/cuda/device.h takes from Jittor and cuBLAS, as declarations.
STUBS = {
    "executor.h": """#pragma once
#include <cstddef>
namespace jittor {
struct Allocator;
struct Allocation { void *ptr; Allocation(Allocator *, size_t); Allocation(Allocation &&) = default; ~Allocation(); };
struct Executor { Allocator *allocator; };
extern Executor exe;
}
""",
    "cublas_v2.h": """#pragma once
typedef struct cublasContext *cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_ALLOC_FAILED = 3 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasDataType_t { CUDA_R_32F_ };
#define CUDA_R_32F CUDA_R_32F_
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                            const void *, cublasDataType_t, int, const void *, cublasDataType_t, int, const void *,
                            void *, cublasDataType_t, int, cublasComputeType_t, cublasGemmAlgo_t);
""",
}
# Replaces Jittor's variables in the operations that take lists of them.
LISTED = """
#include <vector>
struct Listed { long num; template <typename T> T *ptr() const { return nullptr; } };
using Lists = std::vector<Listed *>;
"""


@dataclass(frozen=True)
class KernelCode:
    """The machine code of one kernel for one capability."""

    name: str
    registers: int
    spilled: int  # bytes stored and loaded
    instructions: int
    hmma: int


def main(arguments: Sequence[str]) -> int:
    """Compile, print the table, and return the exit status."""
    given = _parser().parse_args(arguments)
    nvcc = find_nvcc()
    if nvcc is None:
        print("skipped: there is no nvcc; install a CUDA toolkit, or set nvcc_path")
        return 0
    found = {name: source for name, source in sorted(sources().items()) if given.operation in (None, name)}
    if not found:
        raise UserError(f"--operation {given.operation}: no operation of models/ops has this name")
    capabilities = given.capability or CAPABILITIES
    known = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=False).stdout.split()
    for capability in capabilities:
        if known and _architecture(capability) not in known:
            raise UserError(f"--capability {capability}: {nvcc} compiles for none such, only for {', '.join(known)}")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, text in STUBS.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        jobs = [
            (name, capability, pool.submit(compiled, nvcc, source, capability, Path(folder)))
            for name, source in found.items()
            for capability in capabilities
        ]
        return max([_tell(name, capability, job.result()) for name, capability, job in jobs])


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="benchmarks/cuda_check.py", description=__doc__)
    made.add_argument("--capability", action="append", metavar="N.N", help="repeatable (default: 8.0 and 9.0)")
    made.add_argument("--operation", metavar="NAME", help="a module of models/ops (default: all)")
    return made


def find_nvcc() -> str | None:
    """The compiler: of nvcc_path, of CUDA_HOME, or on PATH."""
    home = os.environ.get("CUDA_HOME")
    named = [os.environ.get("nvcc_path"), home and f"{home}/bin/nvcc", "nvcc"]
    return next((path for name in named if name and (path := shutil.which(name))), None)


def sources() -> dict[str, Source]:
    """The source of each module of models/ops that has one for CUDA, by the name of its header."""
    found = {}
    for module in pkgutil.walk_packages(models.ops.__path__, "models.ops."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Source) and value.file(CUDA).exists() and value.header != ON_HOST:
                found[Path(value.header).stem] = value
    return found


def _architecture(capability: str) -> str:
    """The name that nvcc has for a capability."""
    return f"sm_{capability.replace('.', '')}"


def program(source: Source) -> str:
    """The source for CUDA with a use of each function that Python calls, so that all its kernels are compiled."""
    text = source.text(CUDA)
    layouts = {layout.__name__ for layout in source.layouts}
    names = [name for name, layout in _ENTRY.findall(own_text(source)) if layout in layouts]
    uses = ", ".join(f"(void *)&neus::{name}<{'Lists' if source.lists else ''}>" for name in names)
    return f"{LISTED if source.lists else ''}{text}\nvoid *used[] = {{{uses}}};\n"


def own_text(source: Source) -> str:
    """The text of a source, with the headers that it includes from the folder of all devices."""
    text = source.file(CUDA).read_text(encoding="utf-8")
    shared = [source.folder / BOTH / name for name in re.findall(r'^#include "(.*)"', text, re.MULTILINE)]
    return "".join([text, *(path.read_text(encoding="utf-8") for path in shared if path.exists())])


def compiled(nvcc: str, source: Source, capability: str, folder: Path) -> list[KernelCode] | str:
    """The kernels of a source, or the compiler's message."""
    architecture = _architecture(capability)
    stem = folder / f"{Path(source.header).stem}_{architecture}"
    written, made = stem.with_suffix(".cu"), stem.with_suffix(".cubin")
    written.write_text(program(source), encoding="utf-8")
    command = [nvcc, *FLAGS, f"-arch={architecture}", f"-I{folder}", str(written), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip() or done.stdout.strip()
    codes = dict(text_sections(made.read_bytes()))
    return [
        KernelCode(name, int(registers), int(stores) + int(loads), len(codes[name]) // INSTRUCTION, hmma(codes[name]))
        for name, stores, loads, registers in _COMPILED.findall(done.stdout + done.stderr)
    ]


def hmma(code: bytes) -> int:
    """How many instructions multiply fragments on tensor cores."""
    return sum(word & 0xFFF == HMMA for (word,) in struct.iter_unpack(f"<H{INSTRUCTION - 2}x", code))


def text_sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Kernel and content of each section of machine code in an ELF file of 64 bits."""
    offset, size, count, names = struct.unpack_from("<Q10xHHH", cubin, 40)
    headers = [struct.unpack_from("<IIQQQQ", cubin, offset + size * index) for index in range(count)]
    start = headers[names][4]
    for header in headers:
        name = cubin[start + header[0] : cubin.index(b"\0", start + header[0])].decode()
        if name.startswith(".text."):
            yield name.removeprefix(".text."), cubin[header[4] : header[4] + header[5]]


def _tell(name: str, capability: str, found: list[KernelCode] | str) -> int:
    """Print the kernels of an operation; returns 1 if it does not compile or spills."""
    if isinstance(found, str):
        print(f"WRONG  {name} for {capability} does not compile:\n{found}")
        return 1
    spilled = [kernel for kernel in found if kernel.spilled]
    most = max((kernel.registers for kernel in found), default=0)
    words = f"{len(found)} kernels, at most {most} registers"
    print(f"{'WRONG' if spilled else 'ok':5}  {name} for {capability}: {words}")
    for kernel in found:
        told = f"{kernel.registers} registers, {kernel.spilled} bytes spilled, {kernel.instructions} instructions"
        told += f", {kernel.hmma} of tensor cores" if kernel.hmma else ""
        print(f"         {_readable(kernel.name)}: {told}")
    return 1 if spilled else 0


def _readable(mangled: str) -> str:
    """The functions and types named in a mangled name: each is written after its length."""
    words, place = [], 0
    while (found := _LENGTH.search(mangled, place)) is not None:
        end = found.end() + int(found[0])
        word = mangled[found.end() : end]
        is_word = word.isidentifier() and len(word) == int(found[0]) and not word.startswith(("_", "E"))
        words += [word] if is_word and word not in (*words, "neus", "vector") else []
        place = end if is_word else found.end()
    return " ".join(words) or mangled


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
