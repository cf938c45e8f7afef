"""Whether Jittor runs on the card: tried once for each home, in a process whose end harms nobody.

A library or a driver that does not fit may end the whole process, and no exception tells of it. The trial compiles
what every start needs, so a first start takes no longer for it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.io.files import write_atomically
from data.io.lock import waited_for
from models.machine.cuda.home import Home

AGAIN = "Jittor built its compiler helper anew and asks to be started again"
ATTEMPTS = 2  # Jittor asks for it once


def failure(home: Home, task: Callable[..., Any], gpu: int) -> str:
    """Why the task `task(report, gpu)` fails with the home, "" where it does not, now or when it was tried."""
    with contextlib.suppress(OSError), waited_for(home.folder):
        if _mark(home).is_file():
            return ""
        words = _failure(home, task, gpu)
        if not words:
            remember(home)
        return words
    return "" if _mark(home).is_file() else f"{home.folder} cannot be written to"


def remember(home: Home) -> None:
    """From now on the home counts as tried."""
    write_atomically(_mark(home), b"")


def _failure(home: Home, task: Callable[..., Any], gpu: int) -> str:
    from data.io.child import ChildError, run_apart  # what it imports would delay every start by some 20 ms

    words = AGAIN
    for _ in range(ATTEMPTS):
        if words != AGAIN:
            break
        try:
            run_apart(task, gpu, log=home.folder / "trial.log")
            return ""
        except (ChildError, MemoryError) as error:
            words = str(error)
    return f"{words} (see {home.folder / 'trial.log'})"


def _mark(home: Home) -> Path:
    """The file that says so, for this Jittor and this Python."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return home.folder / f"tried-{importlib.metadata.version('jittor')}-{python}"
