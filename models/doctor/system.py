"""The checks without Jittor: interpreter, packages, compiler, memory, and the folder of Jittor's cache."""

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
from models.doctor.line import Line
from models.machine import isa, toolchain
from models.machine.available import available_bytes
from models.machine.backend import INSTALL

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements.txt"
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
        if match and (is_usual or not match[3]):
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
