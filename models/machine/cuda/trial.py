"""Whether Jittor runs on the card: tried once for each home, in a process whose end harms nobody.

A library or a driver that does not fit may end the whole process, and no exception tells of it. The trial compiles
what every start needs, so a first start takes no longer for it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.errors import FAILURE_TEXTS, LONGEST_REASON
from data.io.files import write_atomically
from data.io.lock import waited_for
from models.machine.cuda.conclude import anew
from models.machine.cuda.home import Home

AGAIN = "Jittor built its compiler helper anew and asks to be started again"
UPDATE = "update the driver, or install a CUDA toolkit that is no newer than the driver"
REPORT = "report it with that file"
ATTEMPTS = 2  # Jittor asks for it once
LAST_BYTES = 65536  # of the log: more than any one message
TELLING = re.compile(r"error|fail|fatal|cannot|can't|not found|no such|undefined|unsupported|no space", re.IGNORECASE)
# Colours; [f 1122 17:57:37.828819 64 helper_cuda.h:128]; the C++ library's what(): ; folders of files.
UNTOLD = re.compile(r"\x1b\[[\d;]*m|\[\w \d{4} [\d:.]+ \w+ [^\]]+\]|^\s*what\(\):|(?<![^\s'\"(])/[^\s'\":]*/")
# Words of CUDA, Jittor and the loader, in small letters, and what helps.
REMEDIES = (
    (FAILURE_TEXTS, "end what else takes the memory of the card (nvidia-smi shows it) or of the machine"),
    (("requiresnewerdriver", "insufficientdriver", "unsupportedptx", "driver version"), UPDATE),
    (("no space left", "quota exceeded"), "make room"),
)
BROKEN = ("cannot open shared object", "undefined symbol")


def failure(home: Home, task: Callable[..., Any], gpu: int) -> str:
    """Why the task `task(report, gpu)` fails with the home and what to do, "" where it does not, now or when tried."""
    with contextlib.suppress(OSError), waited_for(home.folder):
        if _mark(home).is_file():
            return ""
        words = _failure(home, task, gpu)
        if not words:
            remember(home)
        return words
    return "" if _mark(home).is_file() else f"{home.folder} cannot be written to: check the folder and the space"


def remember(home: Home) -> None:
    """From now on the home counts as tried."""
    write_atomically(_mark(home), b"")


def _failure(home: Home, task: Callable[..., Any], gpu: int) -> str:
    from data.io.child import ChildError, run_apart  # what it imports would delay every start by some 20 ms

    log, words = home.folder / "trial.log", AGAIN
    log.unlink(missing_ok=True)
    for _ in range(ATTEMPTS):
        if words != AGAIN:
            break
        try:
            run_apart(task, gpu, log=log)
            return ""
        except (ChildError, MemoryError) as error:
            words = str(error)
    told = [_plain(words)]
    told += [said for said in [_last_said(log)] if said and said not in told[0]]
    return f"{', '.join(told)} (see {log}): {_remedy(' '.join(told), home)}, or use --device cpu"


def _last_said(log: Path) -> str:
    """The last line of a log that tells of something wrong; "" where none does."""
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    telling = [line for line in lines if TELLING.search(line)]
    return _plain(telling[-1]) if telling else ""


def _plain(line: str) -> str:
    """A library's words without colours, its own place and time, and folders."""
    return " ".join(UNTOLD.sub("", line).split())[:LONGEST_REASON]


def _remedy(words: str, home: Home) -> str:
    """What is to be done about a trial that ended so."""
    remedies = (*REMEDIES, (BROKEN, anew(home.plan.toolkit)))
    return next((remedy for parts, remedy in remedies if any(part in words.lower() for part in parts)), REPORT)


def _mark(home: Home) -> Path:
    """The file that says so, for this Jittor and this Python."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return home.folder / f"tried-{importlib.metadata.version('jittor')}-{python}"
