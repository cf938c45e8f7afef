"""The lines about the machine: Python, packages, compiler, memory, caches, driver, GPUs and toolkits."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from data.errors import UserError, reason
from data.io.child import ChildError, run_apart
from models.commands.machine_checks.lines import Line
from models.config.program import PROGRAM_FOLDER
from models.machine import isa, jittor_import, toolchain
from models.machine.available import available_bytes
from models.machine.cuda import detect, start
from models.machine.cuda.choice import (
    DRIVER_REMEDY,
    GPU_REMEDY,
    NO_DRIVER,
    Conclusion,
    Facts,
    Toolkit,
    dotted,
    obstacle,
)
from models.machine.jittor_source import INSTALL

REQUIREMENTS = PROGRAM_FOLDER / "requirements.txt"
REQUIREMENT = re.compile(r"([\w-]+)([<>=!][^;]*)?(;.*)?")
BOUND = re.compile(r"(>=|<|==)([\d.]+)")
GIB = 2**30
LEAST_MEMORY = 2 * GIB  # the demo needs half of it, and so does Jittor's first build
LEAST_DISK = GIB  # Jittor and the operations of all recipes need a third of it on the CPU, two thirds on CUDA
PROGRAM = (
    "#include <omp.h>\n#include <vector>\nint main() { return std::vector<int>(omp_get_max_threads()).empty(); }\n"
)
AGAIN = "pip install --force-reinstall --no-deps"  # for a damaged package of the right version
# The modules of the packages; Jittor is checked separately.
MODULES = {name: name for name in ("numpy", "trimesh", "pyhocon", "tqdm", "scipy", "safetensors", "tensorboardX")}
MODULES |= {name: name.replace("-", "_") for name in ("pycolmap", "embreex", "fast-simplification", "xatlas")}
MODULES |= {"opencv-python-headless": "cv2", "PyMCubes": "mcubes", "libigl": "igl", "pillow": "PIL"}
MODULES |= {"scikit-image": "skimage"}


def interpreter() -> Iterator[Line]:
    """Python, the operating system, and Jittor's requirements on them."""
    found = f"{platform.python_version()} ({sys.executable}), {platform.system()} {platform.release()}"
    cores = len(os.sched_getaffinity(0))
    try:
        toolchain.check()
        toolchain.check_environment()
        toolchain.check_limits()
    except UserError as error:
        yield Line("Python", f"{found}, {cores} cores", str(error))
        return
    yield Line("Python", f"{found}, {platform.machine()}, {cores} cores")


def packages() -> Iterator[Line]:
    """One line for requirements.txt, and one for each package that is missing, damaged or of a wrong version."""
    fitting, others = [], []
    broken = _broken(list(MODULES.values()))
    for name, bounds in _required():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            others.append(Line(name, "not installed", INSTALL))
            continue
        if not _is_within(version, bounds):
            others.append(Line(name, f"{version}, not {bounds}", f'pip install "{name}{bounds}"'))
        elif said := broken.get(MODULES.get(name, "")):
            found = f"{version}, but `import {MODULES[name]}` fails ({said})"
            is_itself = f"'{MODULES[name]}" in said or not said.startswith("ModuleNotFoundError")
            others.append(Line(name, found, f'{AGAIN} "{name}{bounds}"' if is_itself else INSTALL))
        else:
            fitting.append(f"{name} {version}")
    yield Line("packages", ", ".join(fitting))
    yield from others


def _broken(modules: Sequence[str]) -> dict[str, str]:
    """The error of each module that cannot be imported; tried in a child process, since an import may abort."""
    found: dict[str, str] = {}
    left = list(modules)
    while left:
        told: list[str] = []
        with tempfile.TemporaryDirectory() as folder:
            try:
                run_apart(import_each, left, log=Path(folder) / "log", on_event=told.append)
            except (ChildError, MemoryError) as error:
                told.append(str(error))
        found |= {name: said for name, said in zip(left, told, strict=False) if said}
        left = left[len(told) :]
    return found


def import_each(report: Callable[[str], None], modules: Sequence[str]) -> None:
    """Report the import error of each module, "" for none. A task for `run_apart`."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 (a damaged package raises anything)
            report(f"{type(error).__name__}: {reason(error)}")
        else:
            report("")


def _required() -> Iterator[tuple[str, str]]:
    """Name and version bounds of each requirement that applies to this machine."""
    is_usual = platform.system() == "Linux" and platform.machine() == "x86_64"
    for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines():
        match = REQUIREMENT.fullmatch(line.partition("#")[0].strip())
        marker = ((match and match[3]) or "").replace(' "', "")
        if match and (is_usual or "platform" not in marker) and _is_within(platform.python_version(), marker):
            yield match[1], (match[2] or "").strip()


def _is_within(version: str, bounds: str) -> bool:
    """Whether the numbers of a version are within all bounds."""
    tests = {">=": lambda own, bound: own >= bound, "<": lambda own, bound: own < bound, "==": _begins}
    return all(tests[sign](_numbers(version), _numbers(bound)) for sign, bound in BOUND.findall(bounds))


def _begins(own: list[int], bound: list[int]) -> bool:
    return own[: len(bound)] == bound


def _numbers(version: str) -> list[int]:
    """The leading numbers of a version."""
    return [int(number) for number in re.split(r"[^\d.]", version)[0].split(".") if number]


def compiler() -> Iterator[Line]:
    """Whether the C++ compiler builds a working OpenMP program for the instruction set in use."""
    command = toolchain.compiler()
    with tempfile.TemporaryDirectory() as name:
        source, program = Path(name) / "program.cc", Path(name) / "program"
        source.write_text(PROGRAM, encoding="utf-8")
        flags = ["-std=c++14", *isa.core_flags(), *isa.operation_flags(), "-fopenmp"]
        try:
            shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
            subprocess.run([command, *flags, source, "-o", program], capture_output=True, text=True, check=True)
            subprocess.run([program], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            found = f"{command} fails ({said[0] if said else ''})"
            yield Line("C++ compiler", found, toolchain.compiler_remedy())
            return
    yield Line("C++ compiler", f"{command}, {shown.splitlines()[0]}")
    used, most = isa.level(), isa.highest()
    lowered = "" if used == most else f", by {isa.VARIABLE}; the processor has {most.name}"
    yield Line("instruction set", f"{used.name}{lowered}")


def memory() -> Iterator[Line]:
    """Free main memory."""
    free = available_bytes()
    wrong = "end other programs" if free < LEAST_MEMORY else ""
    yield Line("memory", f"{free / GIB:.1f} GiB free", wrong)


def cache() -> Iterator[Line]:
    """Whether Jittor's cache folder is writable and has enough free space."""
    folder = Path(toolchain.jittor_home()) / ".cache" / "jittor"
    place = next(path for path in (folder, *folder.parents) if path.is_dir())
    free = shutil.disk_usage(place).free
    found = f"{folder}, {free / GIB:.0f} GiB of disk free"
    if not os.access(place, os.W_OK | os.X_OK):
        yield Line("cache", f"{folder}, not writable", toolchain.HOME_HINT)
        return
    wrong = f"free {LEAST_DISK // GIB} GiB, or {toolchain.HOME_HINT}" if free < LEAST_DISK else ""
    yield Line("cache", found, wrong)


def cuda(device: str, gpu: int) -> Iterator[Line]:
    """The lines about CUDA. An unused GPU is reported as wrong, except with --device cpu."""
    facts, conclusion = start.concluded(gpu)
    is_wanted = device != "cpu"
    yield _driver(facts, is_wanted)
    for index, found in enumerate(facts.driver.gpus if facts.driver else ()):
        size = f", {found.memory / GIB:.0f} GiB" if found.memory else ""
        yield Line(f"GPU {index}", f"{found.name}, capability {dotted(found.capability)}{size}")
    toolkits = facts.toolkits or detect.toolkits(os.environ, detect.package_folders())
    ready = jittor_import.cuda_ready(gpu) if is_wanted and conclusion.plan else None
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
    if words := obstacle(toolkit, facts.driver, facts.driver.gpus[gpu])[1]:
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
