"""How often a training had to go back, and what follows for its learning rate: counted in its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

STATE_KEY = "setbacks"  # in the state of a checkpoint
STOPPED_KEY = "stopped"  # likewise: why a training was given up that wrote the checkpoint last
MOST_ATTEMPTS = 3  # without progress in between
PROGRESS = 300  # steps, taken since and beyond where it had to go back, after which attempts are counted anew
REDUCTION = 0.5  # of the learning rate, each time
MOST_REDUCTIONS = 6  # a rate far below a hundredth of the conf's trains nothing any more


@dataclass(frozen=True)
class Setbacks:
    """What a resumed training needs to decide as the unbroken one would."""

    total: int = 0  # times that the training went back
    attempts: int = 0  # of these, since the last progress
    reached: int = 0  # the furthest good step that it had to go back from
    target: int = 0  # the step that it went back to last
    in_a_row: int = 0  # skipped steps right before the checkpoint

    @property
    def rate_factor(self) -> float:
        """On the learning rate of the conf."""
        return REDUCTION ** min(self.total, MOST_REDUCTIONS)

    def state(self) -> dict[str, Any]:
        """What `restored` reads back from a checkpoint's state; {} where nothing was skipped."""
        return {STATE_KEY: asdict(self)} if self != Setbacks() else {}


def restored(state: Mapping[str, Any]) -> Setbacks:
    """Those of a checkpoint; none where it counts none."""
    counts = state.get(STATE_KEY, {})
    return Setbacks(**{entry.name: counts[entry.name] for entry in fields(Setbacks) if entry.name in counts})
