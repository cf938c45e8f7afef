"""The lines of the doctor, and progress messages while Jittor compiles operations: hundreds at the first run.

The computing process waits for the compiler and cannot print. It reports the start of each stage, and its parent
watches the folder that Jittor compiles into.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from data.errors import one_line, reason
from models.machine.jittor_source import INSTALL
from models.machine.progress import INTERVAL_SECONDS, Word, show

NAME_WIDTH = 22
Check = Callable[[], Iterator["Line"]]
FIRST = "Jittor compiles what the next lines compute; this happens once, and takes minutes."


@dataclass(frozen=True)
class Line:
    """What was found, and a remedy if it is wrong."""

    name: str
    found: str
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
        result = self.found if self.is_ok else f"{self.found}: {self.remedy}"
        return one_line(f"{'ok' if self.is_ok else 'WRONG':<7}{self.name:<{NAME_WIDTH - 1}} {result}")


def guarded(name: str, check: Check, remedy: str) -> Iterator[Line]:
    """The lines of a check; if it raises any exception, a line with that exception."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 (the other checks must still run)
        is_missing = isinstance(error, ModuleNotFoundError)
        yield Line(name, f"{type(error).__name__}: {reason(error)}", INSTALL if is_missing else remedy)


@dataclass(frozen=True)
class CompileStage:
    """A stage of the computation."""

    name: str
    folder: str  # into which Jittor compiles operations


class Compiling:
    """Prints on stderr the stages for which operations are compiled."""

    def __init__(self) -> None:
        self._stage: CompileStage | None = None
        self._began = self._begun = self._looked = time.time()  # of all stages, of the stage, of the last check
        self._has_printed = self._is_reported = False

    def begin(self, stage: CompileStage) -> None:
        """Start a stage."""
        now = time.time()
        self._began = self._began if self._stage else now
        self._stage, self._begun, self._looked, self._is_reported = stage, now, now, False

    def look(self) -> None:
        """Print the stage once an operation was compiled for it; to be called repeatedly."""
        if self._stage is None or self._is_reported or time.time() - self._looked < INTERVAL_SECONDS:
            return
        self._looked = time.time()
        if not _compiled(self._stage.folder, self._begun):
            return
        if not self._has_printed:
            show(Word(FIRST))
        show(Word(f"  compiling for {self._stage.name}"))
        self._has_printed = self._is_reported = True

    def finish(self) -> None:
        """Print the number of compiled operations, if a stage was printed."""
        if self._has_printed and self._stage is not None:
            count, seconds = _compiled(self._stage.folder, self._began), time.time() - self._began
            show(Word(f"  {count} operations compiled in {seconds:.0f} s"))


def _compiled(folder: str, since: float) -> int:
    """The number of operations compiled since a time in seconds of the epoch."""
    if not Path(folder).is_dir():
        return 0
    libraries = [entry for entry in os.scandir(folder) if entry.name.endswith(".so")]
    return sum(entry.stat().st_mtime >= since for entry in libraries)
