"""`--mode doctor`: whether this machine can run the program, and remedies if not. Each check gives lines.

What needs Jittor is computed by a child process, so that a crash does not hide the other lines. It cannot print while
it waits for the compiler: it reports the start of each stage, and its parent prints those that take long, which at the
first run compile hundreds of operations.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from data.errors import UserError, crash_report, one_line, reason
from data.io.child import ChildError, run_apart
from data.io.files import read_regular
from data.io.streams import say
from models.config.program import PROGRAM_FOLDER
from models.machine import backend, isa, jittor_import, toolchain
from models.machine.available import available_bytes
from models.machine.cuda import detect, home
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
from models.machine.jittor_import import INTERVAL_SECONDS, Word, hand_on, show
from models.machine.jittor_source import INSTALL

NAME_WIDTH = 22
Check = Callable[[], Iterator["Line"]]
COMPILES_ONCE = "Jittor compiles what is computed; this happens once, and takes minutes."


@dataclass(frozen=True)
class Line:
    """What was found, and a remedy if it is wrong."""

    name: str
    figure: str
    remedy: str = ""

    @classmethod
    def from_sentence(cls, name: str, sentence: str, otherwise: str, more: str = "") -> Line:
        """A line from an error sentence whose part after the last colon is the remedy; without one, `otherwise` is.

        Args:
            more: appended to the error.
        """
        what, colon, remedy = sentence.rpartition(": ")
        return cls(name, f"{what}{more}", remedy) if colon else cls(name, f"{sentence}{more}", otherwise)

    @property
    def is_ok(self) -> bool:
        """Whether there is no remedy."""
        return not self.remedy

    def text(self) -> str:
        """As it is printed."""
        result = self.figure if self.is_ok else f"{self.figure}: {self.remedy}"
        return one_line(f"{'ok' if self.is_ok else 'WRONG':<7}{self.name:<{NAME_WIDTH - 1}} {result}")


def guarded(name: str, check: Check, remedy: str) -> Iterator[Line]:
    """The lines of a check; if it raises any exception, a line with that exception."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 (the other checks must still run)
        is_missing = isinstance(error, ModuleNotFoundError)
        yield Line(name, f"{type(error).__name__}: {reason(error)}", INSTALL if is_missing else remedy)


REQUIREMENTS_FILE = PROGRAM_FOLDER / "requirements.txt"
GIB = 2**30
LEAST_MEMORY = 2 * GIB  # the demo needs half of it, and so does Jittor's first build
LEAST_DISK = GIB  # Jittor and the operations of all recipes need a third of it on the CPU, two thirds on CUDA
PROBE_PROGRAM = (
    "#include <omp.h>\n#include <vector>\nint main() { return std::vector<int>(omp_get_max_threads()).empty(); }\n"
)
# The modules of the packages; Jittor is checked separately.
MODULES = {name: name for name in ("numpy", "trimesh", "pyhocon", "tqdm", "scipy", "safetensors", "tensorboardX")}
MODULES |= {name: name.replace("-", "_") for name in ("pycolmap", "embreex", "fast-simplification", "xatlas")}
MODULES |= {"opencv-python-headless": "cv2", "PyMCubes": "mcubes", "libigl": "igl", "pillow": "PIL"}
MODULES |= {"scikit-image": "skimage"}


def interpreter() -> Iterator[Line]:
    """Python, the operating system, and Jittor's requirements on them."""
    system = f"{platform.python_version()} ({sys.executable}), {platform.system()} {platform.release()}"
    cores = len(os.sched_getaffinity(0))
    try:
        toolchain.check()
        toolchain.check_environment()
        toolchain.check_limits()
    except UserError as error:
        yield Line("Python", f"{system}, {cores} cores", str(error))
        return
    yield Line("Python", f"{system}, {platform.machine()}, {cores} cores")


def packages() -> Iterator[Line]:
    """One line for requirements.txt, and one for each package that is missing, damaged or of a wrong version."""
    from packaging.requirements import Requirement  # here, since it may be missing

    texts = (line.partition("#")[0].strip() for line in REQUIREMENTS_FILE.read_text(encoding="utf-8").splitlines())
    fitting, others, errors = [], [], import_errors(list(MODULES.values()))
    for required in map(Requirement, filter(None, texts)):
        if required.marker is not None and not required.marker.evaluate():
            continue  # of another Python or platform
        name, bounds = required.name, str(required.specifier)
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            others.append(Line(name, "not installed", INSTALL))
            continue
        if version not in required.specifier:
            others.append(Line(name, f"{version}, not {bounds}", f'pip install "{name}{bounds}"'))
        elif error := errors.get(MODULES.get(name, "")):
            is_own = f"'{MODULES[name]}" in error or not error.startswith("ModuleNotFoundError")
            remedy = f'pip install --force-reinstall --no-deps "{name}{bounds}"' if is_own else INSTALL
            others.append(Line(name, f"{version}, but `import {MODULES[name]}` fails ({error})", remedy))
        else:
            fitting.append(f"{name} {version}")
    yield Line("packages", ", ".join(fitting))
    yield from others


def import_errors(modules: Sequence[str]) -> dict[str, str]:
    """The error of each module that cannot be imported; tried in a child process, since an import may abort."""
    errors: dict[str, str] = {}
    remaining = list(modules)
    while remaining:
        results: list[str] = []
        with tempfile.TemporaryDirectory() as folder:
            try:
                run_apart(import_each, remaining, log=Path(folder) / "log", on_event=results.append)
            except (ChildError, MemoryError) as error:
                results.append(str(error))
        errors |= {name: text for name, text in zip(remaining, results, strict=False) if text}
        remaining = remaining[len(results) :]
    return errors


def import_each(report: Callable[[str], None], modules: Sequence[str]) -> None:
    """Report the import error of each module, "" for none. A task for `run_apart`."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 (a damaged package raises anything)
            report(f"{type(error).__name__}: {reason(error)}")
        else:
            report("")


def compiler() -> Iterator[Line]:
    """Whether the C++ compiler builds a working OpenMP program for the instruction set in use."""
    command = toolchain.compiler()
    with tempfile.TemporaryDirectory() as name:
        source, program = Path(name) / "program.cc", Path(name) / "program"
        source.write_text(PROBE_PROGRAM, encoding="utf-8")
        flags = ["-std=c++14", *isa.core_flags(), *isa.operation_flags(), "-fopenmp"]
        try:
            version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
            subprocess.run([command, *flags, source, "-o", program], capture_output=True, text=True, check=True)
            subprocess.run([program], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            messages = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            sentence = f"{command} fails ({messages[0] if messages else ''})"
            yield Line("C++ compiler", sentence, toolchain.compiler_remedy())
            return
    yield Line("C++ compiler", f"{command}, {version.splitlines()[0]}")
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
    if not os.access(place, os.W_OK | os.X_OK):
        yield Line("cache", f"{folder}, not writable", toolchain.HOME_HINT)
        return
    wrong = f"free {LEAST_DISK // GIB} GiB, or {toolchain.HOME_HINT}" if free < LEAST_DISK else ""
    yield Line("cache", f"{folder}, {free / GIB:.0f} GiB of disk free", wrong)


def cuda(device: str, gpu: int) -> Iterator[Line]:
    """The lines about CUDA. An unused GPU is reported as wrong, except with --device cpu."""
    facts, conclusion = home.concluded(gpu)
    is_wanted = device != "cpu"
    yield _driver(facts, is_wanted)
    for index, card in enumerate(facts.driver.gpus if facts.driver else ()):
        size = f", {card.memory / GIB:.0f} GiB" if card.memory else ""
        yield Line(f"GPU {index}", f"{card.name}, capability {dotted(card.capability)}{size}")
    toolkits = facts.toolkits or detect.toolkits(os.environ, detect.package_folders())
    ready = jittor_import.cuda_ready(gpu) if is_wanted and conclusion.plan else None
    for toolkit in toolkits:
        release = ".".join(map(str, toolkit.release))
        parts = f"without {', '.join(toolkit.missing)}" if toolkit.missing else "complete"
        usage = _usage(toolkit, facts, conclusion, gpu, ready)
        yield Line("CUDA toolkit", f"{release} ({toolkit.nvcc}), {parts}, {usage}")
    named = ((package.metadata["Name"] or "", package.version) for package in importlib.metadata.distributions())
    wheels = ("nvidia-cuda", "nvidia-cublas", "nvidia-curand", "nvidia-nvvm", "nvidia-cudnn")  # PyTorch needs some
    from_pip = {f"{name} {version}" for name, version in named if name == "torch" or name.startswith(wheels)}
    if from_pip:
        yield Line("CUDA from pip", ", ".join(sorted(from_pip)))
    yield _use(facts, conclusion, device, gpu, ready)


def _driver(facts: Facts, is_wanted: bool) -> Line:
    """The NVIDIA driver."""
    if facts.driver is None:
        return Line("NVIDIA driver", "none")
    newest = ".".join(map(str, facts.driver.cuda))
    text = f"{facts.driver.version or 'of unknown version'}, runs CUDA up to {newest}"
    if facts.driver.problem and is_wanted:
        return Line.from_sentence("NVIDIA driver", f"{text}, {facts.driver.problem}", GPU_REMEDY)
    return Line("NVIDIA driver", text)


def _usage(toolkit: Toolkit, facts: Facts, conclusion: Conclusion, gpu: int, ready: home.Ready | None) -> str:
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


def _use(facts: Facts, conclusion: Conclusion, device: str, gpu: int, ready: home.Ready | None) -> Line:
    """The line on whether the GPU is used."""
    if device == "cpu":
        return Line("CUDA", "not used: --device cpu")
    if conclusion.plan is None or ready is None:
        ignored = f" and --gpu {gpu} is ignored" if gpu else ""
        otherwise = f", the CPU is used{ignored}" if device == "auto" else ""
        line = Line.from_sentence("CUDA", conclusion.reason, DRIVER_REMEDY, otherwise)
        is_plain = conclusion.reason == NO_DRIVER and device == "auto"
        return Line(line.name, line.figure) if is_plain else line
    if ready.home is None:
        return Line.from_sentence("CUDA", ready.reason, "use --device cpu")
    codes = ", ".join(dotted(code) for code in ready.home.plan.codes)
    how = "which the driver translates" if ready.home.plan.is_translated else "native"
    used = facts.driver.gpus[gpu] if facts.driver else ready.home.plan.gpu
    return Line("CUDA", f"{used.name} is used; code for {codes}, {how}; home {ready.home.folder}")


REPORT_LINES = "report it with all of these lines"
REPORT_OR_CPU = f"{REPORT_LINES}, or use --device cpu"


def examine(device: str, gpu: int, report: Callable[[Line], None]) -> bool:
    """Run all checks, each after those that it depends on; returns whether all are ok. Lines are reported at once."""
    is_ok = True

    def add(line: Line) -> None:
        nonlocal is_ok
        is_ok = is_ok and line.is_ok
        report(line)

    checks: dict[str, Check] = {"Python": interpreter, "packages": packages, "C++ compiler": compiler}
    checks |= {"memory": memory, "cache": cache, "CUDA": lambda: cuda(device, gpu)}
    for name, check in checks.items():
        for line in guarded(name, check, REPORT_LINES):
            add(line)
    stage, since, has_explained = "", time.time(), False

    def on_event(event: Line | Word | str) -> None:
        nonlocal stage, since
        if isinstance(event, Line):
            add(event)
        elif isinstance(event, Word):
            show(event)
        else:
            stage, since = event, time.time()

    def on_wait() -> None:
        nonlocal stage, has_explained
        if stage and time.time() - since >= INTERVAL_SECONDS:
            if not has_explained:
                show(Word(COMPILES_ONCE))
            show(Word(f"  computing {stage}"))
            stage, has_explained = "", True

    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "log"
        try:
            run_apart(compute, device, gpu, log=log, on_event=on_event, on_wait=on_wait)
        except (ChildError, MemoryError) as error:
            add(Line("Jittor", str(error), "see the lines above and below; if all above are ok, report all of them"))
            say(*crash_report(read_regular(log).decode("utf-8", "replace") if log.is_file() else ""))
    return is_ok


def compute(report: Callable[[Line | Word | str], None], device: str, gpu: int) -> None:
    """Import Jittor and run the checks; reports each line as soon as it is known, and the start of each stage.

    The task of the child process. A package that is missing fails the checks that import it.
    """
    hand_on(report)
    begin = time.perf_counter()
    try:
        jittor_import.select(device, gpu)
        info = backend.device_info()
    except UserError as error:
        report(Line.from_sentence("Jittor", str(error), REPORT_OR_CPU))
        return
    started = f"{info.line()}; started in {time.perf_counter() - begin:.1f} s"
    is_idle = info.name == "cpu" != device and jittor_import.cuda_ready(gpu).home is not None
    report(Line("Jittor", started, info.warning or (REPORT_OR_CPU if is_idle else "")))

    def lines_of(name: str, *arguments: str) -> Iterator[Line]:
        from models.commands import doctor_operations  # loads Jittor, and may fail

        yield from (Line(*result) for result in getattr(doctor_operations, name)(*arguments))

    def operations() -> Iterator[Line]:
        from models.commands.operation_examples import kernels

        for number, name in enumerate(kernels(), 1):
            report(f"op {name}, {number} of {len(kernels())}")
            yield from guarded(f"op {name}", partial(lines_of, "operation", name), REPORT_OR_CPU)

    checks: dict[str, Check] = {"the matrix product": partial(lines_of, "matmul")}
    checks |= {"the gradients": partial(lines_of, "gradients"), "operations": operations}
    checks |= {"the checkpoint": partial(lines_of, "checkpoint")}
    for name, check in checks.items():
        report(name)
        for line in guarded(name, check, REPORT_OR_CPU):
            report(line)
