"""Runs all checks, each after those that it depends on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.errors import crash_report
from data.io.child import ChildError, run_apart
from data.io.files import read_regular
from data.io.streams import say
from models.commands.machine_checks import system
from models.commands.machine_checks.computing import compute
from models.commands.machine_checks.lines import Check, CompileStage, Compiling, Line, guarded
from models.machine.progress import Word, show

REMEDY = "report it with all of these lines"


def examine(device: str, gpu: int, tell: Callable[[Line], None]) -> bool:
    """Run all checks and pass each line to `tell` as soon as it is known; returns whether all are ok."""
    is_ok = True

    def take(line: Line) -> None:
        nonlocal is_ok
        is_ok = is_ok and line.is_ok
        tell(line)

    checks: dict[str, Check] = {
        "Python": system.interpreter,
        "packages": system.packages,
        "C++ compiler": system.compiler,
        "memory": system.memory,
        "cache": system.cache,
        "CUDA": lambda: system.cuda(device, gpu),
    }
    for name, check in checks.items():
        for line in guarded(name, check, REMEDY):
            take(line)
    _compute_apart(device, gpu, take)
    return is_ok


def _compute_apart(device: str, gpu: int, take: Callable[[Line], None]) -> None:
    """The checks that need Jittor, in a child process; if that process ends early, a further line and
    what the process printed.
    """
    compiling = Compiling()

    def on_event(event: Line | CompileStage | Word) -> None:
        handle: Any = take if isinstance(event, Line) else compiling.begin if isinstance(event, CompileStage) else show
        handle(event)

    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "log"
        try:
            run_apart(compute, device, gpu, log=log, on_event=on_event, on_wait=compiling.look)
            compiling.finish()
        except (ChildError, MemoryError) as error:
            take(Line("Jittor", str(error), "see the lines above and below; if all above are ok, report all of them"))
            say(*crash_report(read_regular(log).decode("utf-8", "replace") if log.is_file() else ""))
