"""The complete state of a training, as a value; `models.checkpoints` has its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from data.errors import UserError

MOMENTS = ("exp_avg", "exp_avg_sq")  # the names of Adam's moments in the published checkpoints


class CheckpointError(UserError):
    """A checkpoint that cannot be written, read or used; the message names the file or the step."""


class DivergedError(Exception):
    """The training was stopped because values do not remain finite, or because its result is unusable."""


@dataclass(frozen=True)
class Checkpoint:
    """The complete state of a training, to continue it or to make results."""

    step: int  # optimiser steps taken
    tensors: dict[str, dict[str, np.ndarray]]  # network -> state-dict name -> array, as published
    moments: dict[str, dict[str, np.ndarray]]  # "exp_avg" / "exp_avg_sq" -> "<network>.<name>" -> array
    adam_steps: int  # steps counted by Adam's bias correction
    state: dict[str, Any] = field(default_factory=dict)  # JSON values only: str keys, lists (not tuples), any int
    ema: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)  # averaged weights, like `tensors`; or {}
    buffers: dict[str, np.ndarray] = field(default_factory=dict)  # further arrays of the model; or {}
