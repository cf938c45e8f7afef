"""The lines about CUDA: driver, GPUs, toolkits, pip packages, and which of them are used."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator

from models.doctor.line import Line
from models.machine import backend
from models.machine.cuda import search, start
from models.machine.cuda.conclude import DRIVER_REMEDY, GPU_REMEDY, NO_DRIVER, Conclusion, obstacle
from models.machine.cuda.facts import Facts, Toolkit, dotted

GIB = 2**30


def cuda(device: str, gpu: int) -> Iterator[Line]:
    """The lines about CUDA. An unused GPU is reported as wrong, except with --device cpu."""
    facts, conclusion = start.concluded(gpu)
    is_wanted = device != "cpu"
    yield _driver(facts, is_wanted)
    for index, found in enumerate(facts.driver.gpus if facts.driver else ()):
        size = f", {found.memory / GIB:.0f} GiB" if found.memory else ""
        yield Line(f"GPU {index}", f"{found.name}, capability {dotted(found.capability)}{size}")
    toolkits = facts.toolkits or search.toolkits(os.environ, search.package_folders())
    ready = backend.cuda_ready(gpu) if is_wanted and conclusion.plan else None
    for toolkit in toolkits:
        yield Line("CUDA toolkit", f"{_describe(toolkit)}, {_usage(toolkit, facts, conclusion, gpu, ready)}")
    if packages := _packages():
        yield Line("CUDA from pip", ", ".join(packages))
    yield _use(facts, conclusion, device, gpu, ready)


def _driver(facts: Facts, is_wanted: bool) -> Line:
    """The NVIDIA driver."""
    if facts.driver is None:
        return Line("NVIDIA driver", "none")
    newest = ".".join(map(str, facts.driver.cuda))
    found = f"{facts.driver.version or 'of unknown version'}, runs CUDA up to {newest}"
    if facts.driver.problem and is_wanted:
        return Line.from_sentence("NVIDIA driver", f"{found}, {facts.driver.problem}", GPU_REMEDY)
    return Line("NVIDIA driver", found)


def _describe(toolkit: Toolkit) -> str:
    """Release, path and missing parts of a toolkit."""
    release = ".".join(map(str, toolkit.release))
    has = f"without {', '.join(toolkit.missing)}" if toolkit.missing else "complete"
    return f"{release} ({toolkit.nvcc}), {has}"


def _usage(toolkit: Toolkit, facts: Facts, conclusion: Conclusion, gpu: int, ready: start.Ready | None) -> str:
    """Whether a toolkit is used, or why not; `ready`: the result of building against the suitable toolkits."""
    if facts.driver is None or gpu >= len(facts.driver.gpus):
        return "not used: no GPU"
    if words := obstacle(toolkit, facts.driver, facts.driver.gpus[gpu]):
        return f"not used: {words}"
    fitting = [plan.toolkit for plan in (conclusion.plan, *conclusion.others) if plan is not None]
    used = fitting.index(ready.home.plan.toolkit) if ready and ready.home else len(fitting) if ready else 0
    if toolkit in fitting[:used]:
        return "not used: its compiler does not work"
    return "used" if toolkit in fitting[used : used + 1] else "not used: another toolkit takes precedence"


def _packages() -> list[str]:
    """NVIDIA's CUDA packages installed by pip, and PyTorch, which depends on some of them."""
    named = ((found.metadata["Name"] or "", found.version) for found in importlib.metadata.distributions())
    wanted = ("nvidia-cuda", "nvidia-cublas", "nvidia-curand", "nvidia-nvvm", "nvidia-cudnn", "torch")
    return sorted({f"{name} {version}" for name, version in named if name == "torch" or name.startswith(wanted[:-1])})


def _use(facts: Facts, conclusion: Conclusion, device: str, gpu: int, ready: start.Ready | None) -> Line:
    """The line on whether the GPU is used."""
    if device == "cpu":
        return Line("CUDA", "not used: --device cpu")
    if conclusion.plan is None or ready is None:
        ignored = f" and --gpu {gpu} is ignored" if gpu else ""
        otherwise = f", the CPU is used{ignored}" if device == "auto" else ""
        line = Line.from_sentence("CUDA", conclusion.reason, DRIVER_REMEDY, otherwise)
        is_plain = conclusion.reason == NO_DRIVER and device == "auto"
        return Line(line.name, line.found) if is_plain else line
    if ready.home is None:
        return Line.from_sentence("CUDA", ready.reason, "use --device cpu")
    codes = ", ".join(dotted(code) for code in ready.home.plan.codes)
    how = "which the driver translates" if ready.home.plan.is_translated else "native"
    used = facts.driver.gpus[gpu] if facts.driver else ready.home.plan.gpu
    return Line("CUDA", f"{used.name} is used; code for {codes}, {how}; home {ready.home.folder}")
