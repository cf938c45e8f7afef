"""A NeRF from its conf, with fresh networks."""

from __future__ import annotations

import numpy as np

from models.config.blocks import TrainConfig
from models.fields.nerf import NeRF
from models.kinds.nerf.conf import NeRFConfig
from models.kinds.nerf.model import NeRFModel
from models.kinds.nerf.renderer import NeRFRenderer, RadianceFields


def build(conf: NeRFConfig, train: TrainConfig, generator: np.random.Generator) -> NeRFModel:
    """The model."""
    fields = RadianceFields(coarse=NeRF(conf.nerf, generator), fine=NeRF(conf.nerf, generator))
    return NeRFModel(NeRFRenderer(fields, conf.nerf_renderer), train)
