"""Word of the operations that Jittor compiles for the doctor, hundreds at the first time, none later.

The process that computes cannot tell: it waits for the compiler. So it says what it begins with, and the one that
waits for it looks at the folder that Jittor compiles into.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from models.machine.progress import INTERVAL_SECONDS, Word, show

FIRST = "Jittor compiles what the next lines compute; this happens once, and takes minutes."


@dataclass(frozen=True)
class Stage:
    """What is computed from now on."""

    name: str
    folder: str  # that Jittor compiles operations into


class Compiling:
    """Says on stderr for which stages operations are compiled; silent where none are."""

    def __init__(self) -> None:
        self._stage: Stage | None = None
        self._began = self._begun = self._looked = time.time()  # with all, with the stage
        self._has_spoken = self._is_told = False

    def begin(self, stage: Stage) -> None:
        """Another stage."""
        now = time.time()
        self._began = self._began if self._stage else now
        self._stage, self._begun, self._looked, self._is_told = stage, now, now, False

    def look(self) -> None:
        """To be called again and again: tells of the stage once something is compiled for it."""
        if self._stage is None or self._is_told or time.time() - self._looked < INTERVAL_SECONDS:
            return
        self._looked = time.time()
        if not _compiled(self._stage.folder, self._begun):
            return
        if not self._has_spoken:
            show(Word(FIRST))
        show(Word(f"  compiling for {self._stage.name}"))
        self._has_spoken = self._is_told = True

    def finish(self) -> None:
        """How many it were, where any was told of."""
        if self._has_spoken and self._stage is not None:
            count, seconds = _compiled(self._stage.folder, self._began), time.time() - self._began
            show(Word(f"  {count} operations compiled in {seconds:.0f} s"))


def _compiled(folder: str, since: float) -> int:
    """How many operations were, since then, seconds of the epoch; their sources are written anew at every start."""
    if not Path(folder).is_dir():
        return 0
    libraries = [entry for entry in os.scandir(folder) if entry.name.endswith(".so")]
    return sum(entry.stat().st_mtime >= since for entry in libraries)
