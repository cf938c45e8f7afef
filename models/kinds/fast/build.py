"""Models on grids from their confs, with fresh fields."""

from __future__ import annotations

import numpy as np

from models.config.blocks import TrainConfig
from models.fields.color import RenderingNetwork
from models.fields.sdf_grid import SDFGrid
from models.fields.sharpness import SingleVarianceNetwork
from models.kinds.fast.conf import FastNeuSConfig
from models.kinds.fast.model import FastNeuSModel, Fields


def build_neus(conf: FastNeuSConfig, train: TrainConfig, generator: np.random.Generator) -> FastNeuSModel:
    """A surface."""
    fields = Fields(
        SDFGrid(conf.sdf_grid, generator),
        RenderingNetwork(conf.rendering_network, generator),
        SingleVarianceNetwork(conf.variance_network),
    )
    return FastNeuSModel(fields, conf, train)
