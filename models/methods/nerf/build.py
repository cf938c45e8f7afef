"""Build a radiance field with coarse-to-fine samples, with initialised networks."""

from __future__ import annotations

import numpy as np

from models.config.blocks import TrainConfig
from models.estimators.coarse_to_fine import CoarseToFineEstimator
from models.fields.registry import NERF, RADIANCE
from models.methods.nerf.conf import NeRFConfig
from models.methods.radiance import TwoPassModel
from models.plan import TrainingPlan


def build(conf: NeRFConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan) -> TwoPassModel:
    """The model. The coarse network is initialised first, as it is optimised first.

    A field other than the network of NeRF is used for both passes.
    """
    kind = RADIANCE[conf.radiance_field]
    coarse = kind.build(conf, "coarse", generator)
    fine = kind.build(conf, "fine", generator) if conf.radiance_field == NERF else coarse
    return TwoPassModel(fine, coarse, CoarseToFineEstimator(conf.nerf_renderer), train, plan)
