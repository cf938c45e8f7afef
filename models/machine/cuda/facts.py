"""The CUDA installation of a machine as plain values, so that decisions on them can be tested without a GPU."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from data.errors import LONGEST_REASON
from data.io.files import write_atomically

Release = tuple[int, int]  # 12.4 is (12, 4); (0, 0) if unknown
# What Jittor includes and links; cublasLt is loaded by cuBLAS.
HEADERS = ("cuda_runtime.h", "cublas_v2.h", "curand.h")
LIBRARIES = ("cudart", "cublas", "cublasLt", "curand")
HOME_PREFIX = "cuda-home-"  # name prefix of the folders made by home.py, which are not toolkits
CUB = "cub/cub.cuh"  # of CUDA 12, whose compiler may be installed without it; nvcc 13 finds its own
NPP = "npp.h"  # Jittor uses eight constants of it; home.py writes them if it is missing
PATIENCE = 600.0  # seconds until a failed toolkit is tested again
MOST_BYTES = 1 << 16  # of a record
# Environment variables that compilers read.
VARIABLES: tuple[str, ...] = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
VARIABLES += ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CICC_PATH", "CUDA_PATH")
# Names and texts of CUDA's fatal errors (driver_types.h), in lower case; without errors of invalid calls or out of
# memory, after which the next call may succeed.
TEXTS: tuple[str, ...] = ("illegaladdress", "illegal memory access", "launchfailure", "unspecified launch failure")
TEXTS += ("cudaerrorassert", "device-side assert", "launchtimeout", "launch timed out")
TEXTS += ("eccuncorrectable", "uncorrectable ecc", "nvlinkuncorrectable", "uncorrectable nvlink", "cudaerrorcontained")
TEXTS += ("illegalinstruction", "illegal instruction was", "misalignedaddress", "misaligned address")
TEXTS += ("invalidaddressspace", "global/shared address space", "cudaerrorinvalidpc", "invalid program counter")
TEXTS += ("hardwarestackerror", "hardware stack error", "cudaerrorunknown", "unknown error: status 999")
# The prefix of a message: "[Reason]: ", or level, time, thread and location in Jittor's log.
BEFORE = re.compile(r".*\]:? ")
FOLDERS = re.compile(r"\S*/")


@dataclass(frozen=True)
class Gpu:
    """A GPU that the driver offers."""

    name: str
    capability: int  # 90 for 9.0
    memory: int  # total, bytes

    @property
    def words(self) -> str:
        """Name and capability, for messages."""
        return f"{self.name} (capability {dotted(self.capability)})"


@dataclass(frozen=True)
class Driver:
    """An NVIDIA driver."""

    cuda: Release  # the newest CUDA that it supports
    version: str  # of the driver, such as 580.65.06; "" if unknown
    gpus: tuple[Gpu, ...]  # those that this process may use
    problem: str = ""  # why it offers none
    chosen: str = ""  # CUDA_VISIBLE_DEVICES with its value, if set

    @property
    def words(self) -> str:
        """The driver with its version, for messages."""
        return f"the driver{f' {self.version}' if self.version else ''}"


@dataclass(frozen=True)
class Toolkit:
    """An nvcc with the headers and libraries of its CUDA version; its own take precedence over others."""

    nvcc: str
    release: Release
    codes: tuple[int, ...]  # capabilities it compiles for, ascending; () if unknown
    headers: Mapping[str, str] = field(default_factory=dict)  # name -> file
    libraries: Mapping[str, str] = field(default_factory=dict)  # name without lib and .so -> file

    @property
    def words(self) -> str:
        """Release and path, for messages."""
        return f"CUDA {self.release[0]}.{self.release[1]} ({self.nvcc})"

    @property
    def is_pips(self) -> bool:
        """Whether pip installed it."""
        return "site-packages" in Path(self.nvcc).parts

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of missing files."""
        headers = tuple(name for name in HEADERS if name not in self.headers)
        return headers + tuple(f"lib{name}.so" for name in LIBRARIES if name not in self.libraries)


@dataclass(frozen=True)
class Facts:
    """Driver and toolkits; without a driver, toolkits are not searched."""

    driver: Driver | None
    toolkits: tuple[Toolkit, ...] = ()  # those named by the user first, then in search order


def dotted(capability: int) -> str:
    """9.0 for 90, 12.1 for 121."""
    return f"{capability // 10}.{capability % 10}"


def recall(file: Path, looks: str, patience: float) -> tuple[str, str] | None:
    """Reason and remedy recorded at most `patience` seconds ago for the same `looks`; None otherwise."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if file.stat().st_size <= MOST_BYTES and abs(time.time() - file.stat().st_mtime) < patience:
            noted = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(noted, list) and len(noted) == 3 and all(isinstance(part, str) for part in noted):
                return (noted[1], noted[2]) if noted[0] == looks else None
    return None


def note(file: Path, looks: str, words: str, remedy: str) -> None:
    """Record a failure; an error while writing is ignored."""
    with contextlib.suppress(OSError):
        write_atomically(file, json.dumps([looks, words, remedy]).encode())


def looks(toolkit: Toolkit, compilers: Iterable[str]) -> str:
    """A hash of names, times and sizes of the toolkit's files and the compilers, which changes on reinstallation."""
    root = Path(toolkit.nvcc).parent.parent
    files = [Path(file) for file in (toolkit.nvcc, *toolkit.headers.values(), *toolkit.libraries.values())]
    folders = {root, *_folders(root), *(file.parent for file in files)}
    seen = [(str(path), _state(path)) for path in (*files, *sorted(folders), *map(Path, compilers))]
    return hashlib.sha256(repr((seen, [os.environ.get(name) for name in VARIABLES])).encode()).hexdigest()


def _folders(root: Path) -> list[Path]:
    """The folders of a toolkit, two levels deep, which include all programs, such as those of nvvm/bin."""
    return [path for pattern in ("*", "*/*") for path in root.glob(pattern) if path.is_dir()]


def _state(path: Path) -> tuple[int, int] | None:
    """Modification time and size of a file; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


class GpuFailedError(Exception):
    """A GPU failed; the message has CUDA's error, the state that is kept, and what to do."""

    def __init__(self, words: str, kept: str = "run again") -> None:
        super().__init__(
            f"the GPU failed ({words}): {kept}; if it fails again, run --mode doctor, look at the driver's log "
            "(`dmesg | grep -i xid`), and report both"
        )


def last_words(error: BaseException) -> str:
    """CUDA's message if the error is a failed GPU, on one line; "" for any other error."""
    lines = [line for line in str(error).splitlines() if any(text in line.lower() for text in TEXTS)]
    message = FOLDERS.sub("", BEFORE.sub("", lines[-1])) if lines else ""
    return " ".join(message.split())[:LONGEST_REASON]
