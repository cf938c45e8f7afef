"""A NeRF from its conf, with fresh networks."""

from __future__ import annotations

import numpy as np

from models.config.blocks import TrainConfig
from models.estimators.coarse_to_fine import CoarseToFineEstimator
from models.fields.nerf import NeRF
from models.fields.radiance import NerfField
from models.kinds.nerf.conf import NeRFConfig
from models.kinds.radiance import TwoPassModel


def build(conf: NeRFConfig, train: TrainConfig, generator: np.random.Generator) -> TwoPassModel:
    """The model; the coarse network's values are drawn first, as they are optimised first."""
    coarse = NerfField("nerf_coarse", NeRF(conf.nerf, generator))
    fine = NerfField("nerf_fine", NeRF(conf.nerf, generator))
    return TwoPassModel(fine, coarse, CoarseToFineEstimator(conf.nerf_renderer), train)
