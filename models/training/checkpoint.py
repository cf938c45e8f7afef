"""The complete state of a training, as a value, and the record of its returns and scores in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
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


WATCH_KEY = "watch"  # key in the state of a checkpoint
OLD_KEYS = {"setbacks": {"total": "returns", "in_a_row": "skipped"}, "scores": {"returns": "falls"}}  # of version 0.2
OLD_CURVE = "score_curve"
REDUCTION = 0.5  # of the learning rate, at each return
MOST_REDUCTIONS = 6  # below a hundredth of the conf's learning rate nothing is learnt
FALL = 1.0  # dB below the best; changes of a schedule (finer levels, shorter steps) cause smaller falls


@dataclass(frozen=True)
class Record:
    """What a resumed training needs to decide like an uninterrupted one."""

    returns: int = 0  # to earlier states
    attempts: int = 0  # returns because of skipped steps, since the last progress
    reached: int = 0  # the last finite step before such a return
    skipped: int = 0  # steps skipped directly before the checkpoint
    falls: int = 0  # returns because of low scores
    best: float = -np.inf  # the best score, in dB
    best_step: int = 0
    low: int = 0  # consecutive scores more than FALL below the best
    end_iter: int = 0  # length of the schedule of the scores
    group: str = ""  # of the scored photographs; "": in version 0.2, test photographs if there were any
    curve: tuple[tuple[float, ...], ...] = ()  # every score: step, seconds of training, dB

    @property
    def rate_factor(self) -> float:
        """The factor on the learning rate of the conf."""
        return REDUCTION ** min(self.returns, MOST_REDUCTIONS)

    def without_scores(self, end_iter: int, group: str) -> Record:
        """Before the first score of another schedule or of other photographs."""
        return replace(self, falls=0, best=-np.inf, best_step=0, low=0, end_iter=end_iter, group=group)

    def after_score(self, step: int, seconds: float, score: float, group: str) -> Record:
        """With the score of a further checkpoint; scores of another group of photographs are dropped."""
        if group != self.group:
            return replace(self, curve=()).without_scores(self.end_iter, group).after_score(step, seconds, score, group)
        longer = replace(self, curve=(*self.curve, (step, seconds, score)))
        if score > self.best:
            return replace(longer, best=score, best_step=step, low=0)
        return replace(longer, low=self.low + 1 if score < self.best - FALL else 0)

    def state(self) -> dict[str, Any]:
        """The entry of a checkpoint's state that `recorded` reads; {} if nothing happened."""
        values = {name: value for name, value in asdict(self).items() if value != getattr(Record, name)}
        return {WATCH_KEY: values} if values.keys() - {"end_iter"} else {}


def recorded(state: Mapping[str, Any], end_iter: int | None = None) -> Record:
    """The record in a checkpoint's state, also in that of version 0.2.

    If `end_iter` is given, without the scores of a schedule of another length: a training that is extended returns to
    coarser levels and longer steps, which reduces its scores.
    """
    values = dict(state.get(WATCH_KEY, {}))
    for key, names in OLD_KEYS.items():
        values |= {names.get(name, name): value for name, value in state.get(key, {}).items()}
    curve = tuple(tuple(entry) for entry in values.get("curve", state.get(OLD_CURVE, ())))
    known = {entry.name for entry in fields(Record)}
    record = Record(**{name: value for name, value in values.items() if name in known} | {"curve": curve})
    return record if end_iter in (None, record.end_iter) else record.without_scores(end_iter, record.group)
