"""What was found out about a scene, and how sets of views are named in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data import errors


@dataclass(frozen=True)
class Finding:
    """One line of the health table."""

    check: str
    figure: str  # what was measured
    verdict: str  # good, fair or bad
    consequence: str  # for the training, one sentence


def graded(value: float, good: float, fair: float) -> str:
    """The verdict on a value that is good from `good` on and fair from `fair` on; with good < fair, the other way."""
    sign = 1 if good >= fair else -1
    if sign * value >= sign * good:
        return "good"
    return "fair" if sign * value >= sign * fair else "bad"


def listed(views: np.ndarray, names: Sequence[str] = ()) -> str:
    """`view 3`, `views 1, 2 and 7`, `views 0, 1, 2, 3, 4 and 12 more`; with `names` of all views, those beside."""
    shown = [f"{view} ({names[view]})" if names else str(view) for view in views]
    return f"view{'s' if len(views) > 1 else ''} {errors.listed(shown)}"
