"""What a machine has of CUDA, in plain values: what is concluded from them is tested without a card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Release = tuple[int, int]  # 12.4 is (12, 4); (0, 0) where it is not told
# What Jittor includes and links: cuBLAS loads cublasLt itself.
HEADERS = ("cuda_runtime.h", "cublas_v2.h", "curand.h")
LIBRARIES = ("cudart", "cublas", "cublasLt", "curand")
HOME_PREFIX = "cuda-home-"  # of the names of the folders that home.py makes: none is a toolkit
CUB = "cub/cub.cuh"  # of CUDA 12, whose compiler may come without; where it lies nvcc 13 knows by itself
NPP = "npp.h"  # Jittor takes eight limits from it: home.py writes them where it is missing


@dataclass(frozen=True)
class Card:
    """A card that the driver offers."""

    name: str
    capability: int  # 90 for 9.0
    memory: int  # bytes in all

    @property
    def words(self) -> str:
        """The card in a sentence."""
        return f"{self.name} (capability {dotted(self.capability)})"


@dataclass(frozen=True)
class Driver:
    """An NVIDIA driver."""

    cuda: Release  # the newest CUDA it runs
    version: str  # of its own, 580.65.06; "" where the system does not tell
    cards: tuple[Card, ...]  # those that this process may use
    problem: str = ""  # why it offers none, in its own words
    chosen: str = ""  # the variable that names these and hides others, with its value

    @property
    def words(self) -> str:
        """The driver in a sentence."""
        return f"the driver{f' {self.version}' if self.version else ''}"


@dataclass(frozen=True)
class Toolkit:
    """An nvcc, with the headers and libraries of its CUDA version, its own before those found elsewhere."""

    nvcc: str
    release: Release
    codes: tuple[int, ...]  # capabilities it compiles for, ascending; none where it does not tell
    headers: Mapping[str, str] = field(default_factory=dict)  # name -> file
    libraries: Mapping[str, str] = field(default_factory=dict)  # name without lib and .so -> file

    @property
    def words(self) -> str:
        """The toolkit in a sentence."""
        return f"CUDA {self.release[0]}.{self.release[1]} ({self.nvcc})"

    @property
    def is_pips(self) -> bool:
        """Whether pip has installed it."""
        return "site-packages" in Path(self.nvcc).parts

    @property
    def missing(self) -> tuple[str, ...]:
        """What was not found, as files are named."""
        headers = tuple(name for name in HEADERS if name not in self.headers)
        return headers + tuple(f"lib{name}.so" for name in LIBRARIES if name not in self.libraries)


@dataclass(frozen=True)
class Facts:
    """All of it; no driver where there is none, and then toolkits are not looked for."""

    driver: Driver | None
    toolkits: tuple[Toolkit, ...] = ()  # those that the user names first, then in the order they are looked for


def dotted(capability: int) -> str:
    """9.0 for 90, 12.1 for 121."""
    return f"{capability // 10}.{capability % 10}"
