"""The CUDA installation of a machine as plain values, so that decisions on them can be tested without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Release = tuple[int, int]  # 12.4 is (12, 4); (0, 0) if unknown
# What Jittor includes and links; cublasLt is loaded by cuBLAS.
HEADERS = ("cuda_runtime.h", "cublas_v2.h", "curand.h")
LIBRARIES = ("cudart", "cublas", "cublasLt", "curand")
HOME_PREFIX = "cuda-home-"  # name prefix of the folders made by home.py, which are not toolkits
CUB = "cub/cub.cuh"  # of CUDA 12, whose compiler may be installed without it; nvcc 13 finds its own
NPP = "npp.h"  # Jittor uses eight constants of it; home.py writes them if it is missing


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
