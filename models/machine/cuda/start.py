"""Prepares CUDA for a process: detection, choice of a toolkit, and the CUDA home, made once per machine."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from data.errors import FAILURE_TEXTS, LONGEST_REASON
from data.io.files import write_atomically
from data.io.lock import waited_for
from models.machine.cuda import detect
from models.machine.cuda.choice import PIP_ALL, Conclusion, CudaBuild, Driver, Facts, anew, conclude, install
from models.machine.cuda.detect import VISIBLE
from models.machine.cuda.home import Home, HomeError, prepare

UPDATE = "update the driver, or install a CUDA toolkit that is no newer than the driver"
REPORT = "report it with that file"
LAST_BYTES = 65536  # of the log, longer than any message
TELLING = re.compile(r"error|fail|fatal|cannot|can't|not found|no such|undefined|unsupported|no space", re.IGNORECASE)
# Colours; [f 1122 17:57:37.828819 64 helper_cuda.h:128]; the C++ library's what(): ; folders of files.
UNTOLD = re.compile(r"\x1b\[[\d;]*m|\[\w \d{4} [\d:.]+ \w+ [^\]]+\]|^\s*what\(\):|(?<![^\s'\"(])/[^\s'\":]*/")
# Texts of CUDA, Jittor and the loader, in lower case, and their remedies.
REMEDIES = (
    (FAILURE_TEXTS, "end other programs that use the memory of the GPU (see nvidia-smi) or of the machine"),
    (("requiresnewerdriver", "insufficientdriver", "unsupportedptx", "driver version"), UPDATE),
    (("no space left", "quota exceeded"), "free some disk space"),
)
BROKEN = ("cannot open shared object", "undefined symbol")


@dataclass(frozen=True)
class Ready:
    """A CUDA home, or the reason why there is none, with a remedy."""

    home: Home | None
    reason: str = ""


def visible(gpu: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which GPU `gpu`, of those in CUDA_VISIBLE_DEVICES, is the first."""
    named = environment[VISIBLE].split(",") if VISIBLE in environment else None
    if named is None:
        return {**environment, VISIBLE: str(gpu)}
    return {**environment, VISIBLE: named[gpu].strip()} if 0 < gpu < len(named) else dict(environment)


def gather(environment: Mapping[str, str]) -> Facts:
    """Detect driver and toolkits; toolkits are searched only if there is a driver with a GPU."""
    found: Driver | None = detect.ask(environment)
    toolkits = detect.toolkits(environment, detect.package_folders()) if found and found.gpus else ()
    return Facts(found, tuple(toolkits))


def concluded(gpu: int = 0) -> tuple[Facts, Conclusion]:
    """The facts, and the conclusion for GPU `gpu`."""
    facts = gather(os.environ)
    return facts, conclude(facts, gpu)


@lru_cache(maxsize=4)
def ready(gpu: int, place: Path, host: str) -> Ready:
    """The home for GPU `gpu` below `place`, with `host` as nvcc's C++ compiler; computed once per process."""
    facts, conclusion = concluded(gpu)
    if conclusion.plan is None or facts.driver is None:
        return Ready(None, conclusion.reason)
    plans = (conclusion.plan, *conclusion.others)
    errors: list[HomeError] = []
    for plan in plans:
        try:
            return Ready(prepare(plan, place, host))
        except HomeError as error:
            errors.append(error)
            if not error.is_of_toolkit:
                break
    return Ready(None, _refused(plans, errors, facts.driver))


def _refused(plans: Sequence[CudaBuild], errors: Sequence[HomeError], driver: Driver) -> str:
    """Why no toolkit works, with a reason for each; the remedy is that of the first toolkit, or pip's packages."""
    gpu, first, tried = plans[0].gpu, errors[0], list(zip(plans, errors, strict=False))
    reasons = ", and ".join(f"{plan.toolkit.words} was found, but {error.words}" for plan, error in tried)
    remedies = [first.remedy]
    pips = {error.remedy for plan, error in tried if plan.toolkit.is_pips}
    if first.is_of_toolkit and install(driver) == PIP_ALL != first.remedy and pips <= {PIP_ALL}:
        remedies.append(PIP_ALL)
    return f"{gpu.words} is not used, {reasons}: {', or '.join(remedies)}, or use --device cpu"


def failure(home: Home, task: Callable[..., Any], gpu: int) -> str:
    """Why `task(report, gpu)` fails with the home and what to do; "" if it succeeds now or succeeded before."""
    with contextlib.suppress(OSError), waited_for(home.folder):
        if _mark(home).is_file():
            return ""
        words = _failure(home, task, gpu)
        if not words:
            remember(home)
        return words
    return "" if _mark(home).is_file() else f"{home.folder} cannot be written to: check the folder and the free space"


def remember(home: Home) -> None:
    """Record a successful trial."""
    write_atomically(_mark(home), b"")


def _failure(home: Home, task: Callable[..., Any], gpu: int) -> str:
    from data.io.child import ChildError, run_apart  # what it imports would delay every start by some 20 ms

    log = home.folder / "trial.log"
    log.unlink(missing_ok=True)
    try:
        run_apart(task, gpu, log=log)
        return ""
    except (ChildError, MemoryError) as error:
        reasons = [_plain(str(error))]
    reasons += [line for line in [_last_error(log)] if line and line not in reasons[0]]
    return f"{', '.join(reasons)} (see {log}): {_remedy(' '.join(reasons), home)}, or use --device cpu"


def _last_error(log: Path) -> str:
    """The last line of a log that reports an error; "" if there is none."""
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    telling = [line for line in lines if TELLING.search(line)]
    return _plain(telling[-1]) if telling else ""


def _plain(line: str) -> str:
    """A library's message without colours, source locations, times and folders."""
    return " ".join(UNTOLD.sub("", line).split())[:LONGEST_REASON]


def _remedy(words: str, home: Home) -> str:
    """The remedy for a failed trial."""
    remedies = (*REMEDIES, (BROKEN, anew(home.plan.toolkit)))
    return next((remedy for parts, remedy in remedies if any(part in words.lower() for part in parts)), REPORT)


def _mark(home: Home) -> Path:
    """The file that records a successful trial, for this version of Jittor and Python."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return home.folder / f"tried-{importlib.metadata.version('jittor')}-{python}"
