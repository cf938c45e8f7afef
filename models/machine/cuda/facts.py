"""The CUDA installation of a machine as plain values, so that decisions on them can be tested without a GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from data.errors import LONGEST_REASON

Release = tuple[int, int]  # 12.4 is (12, 4); (0, 0) if unknown
# What Jittor includes and links; cublasLt is loaded by cuBLAS.
HEADERS = ("cuda_runtime.h", "cublas_v2.h", "curand.h")
LIBRARIES = ("cudart", "cublas", "cublasLt", "curand")
HOME_PREFIX = "cuda-home-"  # name prefix of the folders made by home.py, which are not toolkits
CUB = "cub/cub.cuh"  # of CUDA 12, whose compiler may be installed without it; nvcc 13 finds its own
NPP = "npp.h"  # Jittor uses eight constants of it; home.py writes them if it is missing
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
