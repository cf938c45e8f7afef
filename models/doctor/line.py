"""The result of a check: a line of the doctor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from data.errors import one_line, reason
from models.machine.backend import INSTALL

NAME_WIDTH = 22
Check = Callable[[], Iterator["Line"]]


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
