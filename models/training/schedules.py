"""Learning-rate schedules as functions of the step; `train.learning_rate_decay` names one of CURVES.

Cosine and linear warm-up as published (https://github.com/Totoro97/NeuS/blob/6e0a230/exp_runner.py); exponential: NeRF,
arXiv 2003.08934, section 5.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from models.config.blocks import COSINE, EXPONENTIAL, TrainConfig

Schedule = Callable[[int], float]  # finished steps -> rate of the next one
Decay = Callable[[float, float], float]  # (completed fraction in 0..1, final factor) -> factor, initially 1


def cosine(done: float, end: float) -> float:
    """Cosine decay from 1 to `end`."""
    return (math.cos(math.pi * done) + 1.0) * 0.5 * (1.0 - end) + end


def exponential(done: float, end: float) -> float:
    """Exponential decay from 1 to `end`, which must be above 0."""
    return end**done


CURVES: dict[str, Decay] = {COSINE: cosine, EXPONENTIAL: exponential}


def learning_rate(train: TrainConfig) -> Schedule:
    """The rate of a conf; the very first step of a warm-up has the rate 0, as published."""
    decay = CURVES[train.learning_rate_decay]
    after = decaying(decay, train.learning_rate, train.learning_rate_alpha, train.warm_up_end, train.end_iter)
    return warmed_up(after, train.warm_up_end)


def decaying(decay: Decay, rate: float, end: float, first: float, last: float) -> Schedule:
    """`rate` up to step `first`, then decaying to `end` times `rate` at step `last`."""
    return lambda step: rate * decay(max(0.0, step - first) / (last - first), end)


def warmed_up(schedule: Schedule, steps: float) -> Schedule:
    """The schedule times a factor that rises linearly from 0 to 1 over `steps` steps."""
    return lambda step: schedule(step) * min(1.0, step / steps) if steps else schedule(step)
