"""The choice of a CUDA toolkit for a GPU, as a pure function of the facts: testable without a GPU. A GPU that fails."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from data.errors import LONGEST_REASON, listed

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

    @property
    def runs(self) -> str:
        """The newest CUDA, for messages."""
        return f"{self.words} runs CUDA up to {self.cuda[0]}.{self.cuda[1]}"


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


OLDEST_MAJOR, NEWEST_MAJOR = 12, 13  # of CUDA, with which Jittor 1.3.11 was tested
REQUIREMENTS = "requirements-cuda.txt"
GPU_REMEDY = "check the output of nvidia-smi; restart the machine, or reinstall the driver"
PIP_ALL = f"pip install -r {REQUIREMENTS}"
PIP_MAJOR = 13  # the wheels of CUDA 13 contain an nvcc, those of 12 do not
PIP_DRIVER = "580"  # the oldest for CUDA 13
OLDEST_GPU = 75  # capability: what the networks compute in tiles needs (models/ops/csrc/cuda/device.h)
OLDER_TOOLKIT = f"install a CUDA {OLDEST_MAJOR} toolkit"
# Capabilities of embedded boards: their code does not run on other GPUs.
EMBEDDED = (53, 62, 72, 87, 101, 110)
NO_DRIVER = "no NVIDIA driver is installed"
DRIVER_REMEDY = f"install one, version {PIP_DRIVER} or newer, or use --device cpu"


@dataclass(frozen=True)
class CudaBuild:
    """A toolkit for a GPU, and the targets to compile for."""

    toolkit: Toolkit
    gpu: Gpu
    codes: tuple[int, ...]  # the target capabilities: one, except in tests of the compilation
    is_translated: bool  # the GPU is newer than the toolkit: the driver compiles PTX when it is loaded


@dataclass(frozen=True)
class Conclusion:
    """The selected build, or the reason why there is none."""

    plan: CudaBuild | None
    reason: str = ""
    others: tuple[CudaBuild, ...] = ()  # with the other suitable toolkits, in order, in case the first does not work


def conclude(facts: Facts, gpu: int = 0) -> Conclusion:
    """The build for GPU `gpu` with the first suitable toolkit, or the reason of the one that passed the most checks."""
    driver = facts.driver
    if driver is None:
        return Conclusion(None, NO_DRIVER)
    if driver.problem or not driver.gpus:
        problem = driver.problem or "it finds no GPU"
        remedy = "" if ": " in problem else f": {GPU_REMEDY}"
        return Conclusion(None, f"no NVIDIA GPU is available to {driver.words}, {problem}{remedy}")
    if gpu >= len(driver.gpus):
        count = len(driver.gpus)
        offered = "1 GPU" if count == 1 else f"{count} GPUs"
        chosen = f" among those of {driver.chosen}" if driver.chosen else ""
        remedy = "choose --gpu 0" if count == 1 else f"choose --gpu 0 to {count - 1}"
        return Conclusion(None, f"--gpu {gpu} does not exist: {driver.words} offers {offered}{chosen}: {remedy}")
    selected = driver.gpus[gpu]
    if selected.capability < OLDEST_GPU:
        oldest = f"GPUs are supported from capability {dotted(OLDEST_GPU)} (Turing, 2018) on"
        return Conclusion(None, f"{selected.words} is not used, {oldest}: use --device cpu, or another one with --gpu")
    if driver.cuda < (OLDEST_MAJOR, 0):
        return Conclusion(None, f"{selected.words} is not used, {driver.runs}: {install(driver)}")
    tried = [(obstacle(toolkit, driver, selected), toolkit) for toolkit in facts.toolkits]
    if plans := [
        CudaBuild(toolkit, selected, *_targets(toolkit, selected)) for (_, words), toolkit in tried if not words
    ]:
        return Conclusion(plans[0], others=tuple(plans[1:]))
    if not tried:
        return Conclusion(None, f"{selected.words} is not used, there is no nvcc: {install(driver)}")
    (_, words), _ = max(tried, key=lambda entry: entry[0][0])  # the first of those with the most passed checks
    return Conclusion(None, f"{selected.words} is not used, {words}")


def insisted(reason: str) -> str:
    """The error message of --device cuda for a reason."""
    return f"--device cuda: {reason}{f': {DRIVER_REMEDY}' if reason == NO_DRIVER else ''}"


def obstacle(toolkit: Toolkit, driver: Driver, gpu: Gpu) -> tuple[int, str]:
    """The number of passed checks, and why a toolkit cannot be used and what to do; "" if it can be used."""
    release, name = toolkit.release, toolkit.words
    if release == (0, 0):
        return 0, f"{toolkit.nvcc} does not print its version: {install(driver)}"
    if not OLDEST_MAJOR <= release[0] <= NEWEST_MAJOR:
        untried = f"{name} is not {OLDEST_MAJOR}.0 to {NEWEST_MAJOR}.x, which Jittor 1.3.11 is known to compile with"
        return 1, f"{untried}: {install(driver)}"
    if release[0] > driver.cuda[0]:
        return 2, f"{driver.runs}, older than {name}: update it to {PIP_DRIVER} or newer, or {OLDER_TOOLKIT}"
    if toolkit.codes and gpu.capability < toolkit.codes[0]:
        return 3, f"{name} compiles for {dotted(toolkit.codes[0])} and newer only: {OLDER_TOOLKIT}"
    _, is_translated = _targets(toolkit, gpu)
    if is_translated and release > driver.cuda:
        return 4, f"{name} does not know it and is newer than {driver.words}: update the driver"
    if toolkit.missing:
        return 5, f"{name} lacks {listed(toolkit.missing, len(toolkit.missing))}: {_complete(toolkit)}"
    return 6, ""


def _targets(toolkit: Toolkit, gpu: Gpu) -> tuple[tuple[int], bool]:
    """The target capability, in a tuple, and whether the driver must compile its PTX for the GPU.

    Machine code runs on later minor capabilities of the same major one; for a newer major one PTX is needed.
    """
    known = [code for code in toolkit.codes if code < gpu.capability and code not in EMBEDDED]
    known += [code for code in toolkit.codes if code == gpu.capability]
    if not toolkit.codes or not known:
        return (gpu.capability,), False
    newest = known[-1]
    return (newest,), newest // 10 != gpu.capability // 10


def install(driver: Driver) -> str:
    """The command or instruction that installs a suitable toolkit, and a driver for it."""
    if driver.cuda >= (PIP_MAJOR, 0):
        return PIP_ALL
    newer = f"update {driver.words} to {PIP_DRIVER} or newer and {PIP_ALL}"
    return f"{newer}, or {OLDER_TOOLKIT}" if driver.cuda >= (OLDEST_MAJOR, 0) else newer


def anew(toolkit: Toolkit) -> str:
    """The command or instruction that repairs a broken toolkit."""
    return PIP_ALL if toolkit.is_pips else "reinstall the CUDA toolkit"


def _complete(toolkit: Toolkit) -> str:
    """How to install the missing files of a toolkit."""
    if toolkit.release[0] == PIP_MAJOR:
        return PIP_ALL
    wheels = {"cublas": "nvidia-cublas-cu12", "curand": "nvidia-curand-cu12", "cuda": "nvidia-cuda-runtime-cu12"}
    names = [name for stem, name in wheels.items() if any(stem in file for file in toolkit.missing)]
    if CUB not in toolkit.headers and wheels["cuda"] in names:  # nothing but the compiler is there
        names.append("nvidia-cuda-cccl-cu12")
    return f"pip install {' '.join(names)}"


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


class GpuFailedError(Exception):
    """A GPU failed; the message has CUDA's error, the state that is kept, and what to do."""

    def __init__(self, words: str, next_step: str = "run again") -> None:
        super().__init__(
            f"the GPU failed ({words}): {next_step}; if it fails again, run --mode doctor, look at the driver's log "
            "(`dmesg | grep -i xid`), and report both"
        )


def last_words(error: BaseException) -> str:
    """CUDA's message if the error is a failed GPU, on one line; "" for any other error."""
    lines = [line for line in str(error).splitlines() if any(text in line.lower() for text in TEXTS)]
    message = FOLDERS.sub("", BEFORE.sub("", lines[-1])) if lines else ""
    return " ".join(message.split())[:LONGEST_REASON]
