"""Build the Gaussians of a conf; their initial positions come from the scene."""

from __future__ import annotations

import numpy as np

from models.config.blocks import TrainConfig
from models.config.strict import ConfigError
from models.methods.gaussians.conf import GaussiansConfig
from models.methods.gaussians.model import GaussiansModel
from models.plan import TrainingPlan


def build(
    conf: GaussiansConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan
) -> GaussiansModel:
    """The model; raises ConfigError if weights are to be averaged."""
    if train.ema_decay > 0:
        raise ConfigError(
            f"train.ema_decay = {train.ema_decay:g}: Gaussians that are relocated have no average; set it to 0"
        )
    return GaussiansModel(conf.gaussians, conf.photographs, train, generator, plan)
