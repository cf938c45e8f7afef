"""The number of returns to earlier states and the resulting learning rate, stored in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

STATE_KEY = "setbacks"  # key in the state of a checkpoint
STOPPED_KEY = "stopped"  # the same: why the training that wrote the checkpoint was stopped
MOST_ATTEMPTS = 3  # without progress in between
PROGRESS = 300  # steps beyond the failed one after which attempts are counted from zero again
REDUCTION = 0.5  # of the learning rate, at each return
MOST_REDUCTIONS = 6  # below a hundredth of the conf's learning rate nothing is learnt


@dataclass(frozen=True)
class Setbacks:
    """The counts that a resumed training needs to decide like an uninterrupted one."""

    total: int = 0  # number of returns
    attempts: int = 0  # of these, since the last progress
    reached: int = 0  # the last finite step before a return
    target: int = 0  # the step of the last return
    in_a_row: int = 0  # skipped steps directly before the checkpoint

    @property
    def rate_factor(self) -> float:
        """The factor on the learning rate of the conf."""
        return REDUCTION ** min(self.total, MOST_REDUCTIONS)

    def state(self) -> dict[str, Any]:
        """The entry of a checkpoint's state that `restored` reads; {} if nothing was skipped."""
        return {STATE_KEY: asdict(self)} if self != Setbacks() else {}


def restored(state: Mapping[str, Any]) -> Setbacks:
    """The counts of a checkpoint; zero if it has none."""
    counts = state.get(STATE_KEY, {})
    return Setbacks(**{entry.name: counts[entry.name] for entry in fields(Setbacks) if entry.name in counts})
