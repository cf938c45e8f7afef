"""Record the kernels that run on the GPU, with CUPTI, which is part of a CUDA toolkit and of PyTorch's packages.

Needs neither a profiler nor the permission to read hardware counters, and does not slow the kernels down, so that the
gaps between them are those of a run without it. Does not import Jittor.
"""

from __future__ import annotations

import csv
import ctypes
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from models.machine import toolchain

CONCURRENT_KERNEL = 10  # CUpti_ActivityKind
BUFFERS = Path(__file__).parent / "kernels" / "trace_buffers.cpp"
# Below a toolkit's folder; the last one is that of pip's packages.
PLACES = ("extras/CUPTI/lib64", "lib64", "lib", "lib/x86_64-linux-gnu", "nvidia/*/lib")


class TraceError(RuntimeError):
    """CUPTI is missing or fails."""


class _Kernel(ctypes.Structure):
    """The beginning of CUpti_ActivityKernel4 to 10, which is the same in CUDA 11 to 13."""

    _pack_ = 8
    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("caches", ctypes.c_uint8 * 12),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("completed", ctypes.c_uint64),
        ("places", ctypes.c_uint32 * 13),  # device, context, stream, grid, block, shared and local memory
        ("correlation", ctypes.c_uint32),
        ("grid", ctypes.c_int64),
        ("name", ctypes.c_char_p),
    ]


@dataclass(frozen=True)
class Launch:
    """A kernel's run, in nanoseconds of the GPU's clock."""

    name: str
    start: int
    end: int


def libraries(toolkit: Path) -> Iterator[Path]:
    """The CUPTI libraries of a toolkit's folder and of pip's packages, the toolkit's first."""
    for root in (toolkit, *map(Path, sys.path)):
        for place in PLACES:
            yield from sorted(root.glob(f"{place}/libcupti.so*"), reverse=True)


@contextmanager
def recorded(toolkit: Path) -> Iterator[list[Launch]]:
    """A list that holds the launches of the body afterwards, in order; raises TraceError."""
    path = next(libraries(toolkit), None)
    if path is None:
        raise TraceError(f"there is no libcupti.so below {toolkit} nor among Python's packages")
    cupti, kept = ctypes.CDLL(str(path)), _buffers()
    _check(cupti, "cuptiActivityRegisterCallbacks", kept.requested, kept.completed)
    _check(cupti, "cuptiActivityEnable", CONCURRENT_KERNEL)
    found: list[Launch] = []
    yield found
    _check(cupti, "cuptiActivityFlushAll", 1)
    _check(cupti, "cuptiActivityDisable", CONCURRENT_KERNEL)
    for index in range(kept.count()):
        found.extend(_launches(cupti, kept.buffer_of(index), kept.valid_of(index)))
    found.sort(key=lambda launch: launch.start)


def _buffers() -> ctypes.CDLL:
    """The library of trace_buffers.cpp, compiled now."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace_buffers.so"
        command = [toolchain.compiler(), "-std=c++17", "-O1", "-fPIC", "-shared", str(BUFFERS), "-o", str(path)]
        subprocess.run(command, check=True)
        kept = ctypes.CDLL(str(path))
    kept.buffer_of.restype, kept.valid_of.restype, kept.count.restype = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
    )
    kept.buffer_of.argtypes = kept.valid_of.argtypes = (ctypes.c_size_t,)
    return kept


def _launches(cupti: ctypes.CDLL, buffer: int, valid: int) -> Iterator[Launch]:
    given, record = (ctypes.c_void_p(buffer), ctypes.c_size_t(valid)), ctypes.c_void_p()
    while valid and cupti.cuptiActivityGetNextRecord(*given, ctypes.byref(record)) == 0:
        kernel = _Kernel.from_address(record.value)
        if kernel.kind == CONCURRENT_KERNEL:
            yield Launch((kernel.name or b"").decode(errors="replace"), kernel.start, kernel.end)


def _check(cupti: ctypes.CDLL, function: str, *arguments: object) -> None:
    if status := getattr(cupti, function)(*arguments):
        raise TraceError(f"{function} of CUPTI fails with status {status}")


def write(path: Path, launches: Iterable[Launch]) -> None:
    """A CSV file of launches, with readable names if c++filt is there."""
    launches = list(launches)
    names = "\n".join(launch.name for launch in launches)
    if shutil.which("c++filt"):
        names = subprocess.run(["c++filt"], input=names, capture_output=True, text=True, check=True).stdout
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = zip(names.splitlines(), launches, strict=True)
        csv.writer(file).writerows((name, launch.start, launch.end) for name, launch in rows)


def read(path: Path) -> list[Launch]:
    """What `write` wrote; nothing if there is no such file."""
    if not path.is_file():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        return [Launch(name, int(start), int(end)) for name, start, end in csv.reader(file)]
