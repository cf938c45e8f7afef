"""A radiance field sampled coarse to fine, from its conf, with fresh networks."""

from __future__ import annotations

import numpy as np

from models.config.blocks import TrainConfig
from models.estimators.coarse_to_fine import CoarseToFineEstimator
from models.fields.registry import NERF, RADIANCE
from models.methods.nerf.conf import NeRFConfig
from models.methods.radiance import TwoPassModel


def build(conf: NeRFConfig, train: TrainConfig, generator: np.random.Generator) -> TwoPassModel:
    """The model; the coarse network's values are drawn first, as they are optimised first.

    A field other than NeRF's network serves both passes.
    """
    kind = RADIANCE[conf.radiance_field]
    coarse = kind.build(conf, "coarse", generator)
    fine = kind.build(conf, "fine", generator) if conf.radiance_field == NERF else coarse
    return TwoPassModel(fine, coarse, CoarseToFineEstimator(conf.nerf_renderer), train)
