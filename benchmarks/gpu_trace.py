"""Record the kernels that run on the GPU, with CUPTI, which is part of a CUDA toolkit and of PyTorch's packages.

Needs neither a profiler nor the permission to read hardware counters, and does not slow the kernels down, so that the
gaps between them are those of a run without it. Does not import Jittor.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from data.errors import UserError
from models.machine import toolchain

CONCURRENT_KERNEL = 10  # CUpti_ActivityKind
BUFFERS = Path(__file__).parent / "trace_buffers.cpp"
# Below a toolkit's folder; the last one is that of pip's packages.
PLACES = ("extras/CUPTI/lib64", "lib64", "lib", "lib/x86_64-linux-gnu", "nvidia/*/lib")
# First match wins. cuBLAS launches the sums of products with a split depth itself.
GROUPS = (
    ("networks in tiles", re.compile(r"neus::(sdf|relu)_\w+_kernel")),
    ("gradients of weights", re.compile(r"neus::gradients_kernel")),
    ("split-depth sums of cuBLAS", re.compile(r"split_?k_?reduce", re.IGNORECASE)),
    ("matrix products", re.compile(r"gem[mv]|cutlass|cublas|xmma|split_?k|neus::product_kernel", re.IGNORECASE)),
    ("column sums", re.compile(r"column_sums|add_columns")),
    ("element-wise", re.compile(r"neus::each_(kernel|part_kernel)")),
    ("other own kernels", re.compile(r"neus::")),
    ("others", re.compile("")),
)
GAP = 20_000  # nanoseconds between two kernels: a longer time is the host's, not that of a launch
LAMBDA = re.compile(r"neus::(\w+)(?:<[^(]*>)?\([^{]*\{lambda\([^)]*\)#(\d+)\}")


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


@contextmanager
def recorded(toolkit: Path) -> Iterator[list[Launch]]:
    """A list that holds the launches of the body afterwards, in order; raises UserError without CUPTI."""
    found = (path for root in (toolkit, *map(Path, sys.path)) for place in PLACES for path in _libraries(root, place))
    path = next(found, None)
    if path is None:
        raise UserError(f"there is no libcupti.so below {toolkit} nor among Python's packages: install CUPTI")
    cupti, kept = ctypes.CDLL(str(path)), _buffers()
    _check(cupti, "cuptiActivityRegisterCallbacks", kept.requested, kept.completed)
    _check(cupti, "cuptiActivityEnable", CONCURRENT_KERNEL)
    launches: list[Launch] = []
    yield launches
    _check(cupti, "cuptiActivityFlushAll", 1)
    _check(cupti, "cuptiActivityDisable", CONCURRENT_KERNEL)
    for index in range(kept.count()):
        launches.extend(_launches(cupti, kept.buffer_of(index), kept.valid_of(index)))
    launches.sort(key=lambda launch: launch.start)


def _libraries(root: Path, place: str) -> list[Path]:
    return sorted(root.glob(f"{place}/libcupti.so*"), reverse=True)


def _buffers() -> ctypes.CDLL:
    """The library of trace_buffers.cpp, compiled now."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace_buffers.so"
        command = [toolchain.compiler(), "-std=c++17", "-O1", "-fPIC", "-shared", str(BUFFERS), "-o", str(path)]
        subprocess.run(command, check=True)
        kept = ctypes.CDLL(str(path))
    kept.buffer_of.restype = ctypes.c_void_p
    kept.valid_of.restype = kept.count.restype = ctypes.c_size_t
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
        raise UserError(f"{function} of CUPTI fails with status {status}")


def summary(launches: Sequence[Launch], steps: int) -> dict[str, Any]:
    """Of one of `steps` steps: figures by name, and rows (name, launches, ms) of groups and of kernels, longest first.

    The time before the first kernel is missing, so that the waits for the host lack one of `steps`.
    """
    names = [launch.name for launch in launches]
    if shutil.which("c++filt"):
        words = "".join(f"{name}\n" for name in names)
        names = subprocess.run(["c++filt"], input=words, capture_output=True, text=True, check=True).stdout.splitlines()
    groups, kernels = _spent(names, launches, steps, group_of), _spent(names, launches, steps, short)
    ends = accumulate((launch.end for launch in launches), max)
    gaps = [max(0, launch.start - end) for end, launch in zip(ends, launches[1:], strict=False)]
    waits = sum(gap for gap in gaps if gap >= GAP)
    figures = {"launches": len(launches) / steps}
    for name, count, milliseconds in groups:
        figures |= {f"launches of {name}": count, f"ms of {name}": milliseconds}
    figures |= {"ms between launches": 1e-6 * (sum(gaps) - waits) / steps}
    figures |= {"ms of waiting for the host": 1e-6 * waits / steps}
    return {"figures": figures, "groups": groups, "kernels": kernels}


def _spent(
    names: Sequence[str], launches: Sequence[Launch], steps: int, called: Callable[[str], str]
) -> list[tuple[str, float, float]]:
    counts, times = Counter(map(called, names)), Counter()
    for name, launch in zip(names, launches, strict=True):
        times[called(name)] += launch.end - launch.start
    return [(name, counts[name] / steps, 1e-6 * time / steps) for name, time in times.most_common()]


def short(name: str) -> str:
    """A kernel's name; of the work of a function in csrc/cuda, the function and its how many-th lambda."""
    found = LAMBDA.search(name)
    return f"{found[1]}, lambda {found[2]}" if found else re.sub(r"^void ", "", name)[:100]


def group_of(name: str) -> str:
    """The first group whose pattern is in a name."""
    return next(group for group, pattern in GROUPS if pattern.search(name))
