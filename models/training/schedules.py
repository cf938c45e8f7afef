"""Schedules as plain functions of the step (https://github.com/Totoro97/NeuS/blob/6e0a230/exp_runner.py)."""

from __future__ import annotations

import math

from models.config.blocks import EXPONENTIAL, TrainConfig


def learning_rate(step: int, conf: TrainConfig) -> float:
    """Linear warm-up from 0 to `learning_rate`, then down to `learning_rate_alpha` of it by `learning_rate_decay`.

    That is half a cosine (NeuS) or an exponential (NeRF, arXiv 2003.08934, section 5.3). `step` counts finished steps:
    the very first of a warm-up has the rate 0, as published.
    """
    if step < conf.warm_up_end:
        return conf.learning_rate * step / conf.warm_up_end
    progress = (step - conf.warm_up_end) / (conf.end_iter - conf.warm_up_end)
    floor = conf.learning_rate_alpha
    if conf.learning_rate_decay == EXPONENTIAL:
        return conf.learning_rate * floor**progress
    return conf.learning_rate * ((math.cos(math.pi * progress) + 1.0) * 0.5 * (1.0 - floor) + floor)
