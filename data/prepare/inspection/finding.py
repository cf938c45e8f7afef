"""The result of a check, and its grading."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One row of the health table."""

    check: str
    figure: str  # what was measured
    verdict: str  # good, fair or bad
    consequence: str  # for the training, one sentence

    @property
    def line(self) -> str:
        """The finding in one line."""
        return f"{self.check} ({self.verdict}): {self.figure}; {self.consequence}"


def graded(value: float, good: float, fair: float) -> str:
    """The verdict on a value that is good from `good` and fair from `fair` upwards; downwards if good < fair."""
    sign = 1 if good >= fair else -1
    if sign * value >= sign * good:
        return "good"
    return "fair" if sign * value >= sign * fair else "bad"
