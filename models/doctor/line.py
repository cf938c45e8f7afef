"""One thing that was looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from data.errors import one_line, reason
from models.machine.backend import INSTALL

NAME_WIDTH = 22
Check = Callable[[], Iterator["Line"]]


@dataclass(frozen=True)
class Line:
    """What was found; where it is not as it should be, what is to be done."""

    name: str
    found: str
    remedy: str = ""

    @classmethod
    def told(cls, name: str, sentence: str, otherwise: str, more: str = "") -> Line:
        """A sentence that says what is wrong and, after its last colon, what is to be done: `otherwise` if it does not.

        Args:
            more: what follows from what is wrong.
        """
        what, colon, remedy = sentence.rpartition(": ")
        return cls(name, f"{what}{more}", remedy) if colon else cls(name, f"{sentence}{more}", otherwise)

    @property
    def is_ok(self) -> bool:
        """Whether nothing is to be done."""
        return not self.remedy

    def text(self) -> str:
        """As it is printed."""
        told = self.found if self.is_ok else f"{self.found}: {self.remedy}"
        return one_line(f"{'ok' if self.is_ok else 'WRONG':<7}{self.name:<{NAME_WIDTH - 1}} {told}")


def guarded(name: str, check: Check, remedy: str) -> Iterator[Line]:
    """The lines of a check; of one that raises, whatever it is, a line that says so."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 (the others still count)
        is_missing = isinstance(error, ModuleNotFoundError)
        yield Line(name, f"{type(error).__name__}: {reason(error)}", INSTALL if is_missing else remedy)
