"""Models on grids from their confs, with fresh fields."""

from __future__ import annotations

import numpy as np

from models.config.blocks import TrainConfig
from models.fields.color import RenderingNetwork
from models.fields.density_grid import DensityGrid
from models.fields.sdf_grid import SDFGrid
from models.fields.sharpness import SingleVarianceNetwork
from models.kinds.fast.background import Background
from models.kinds.fast.conf import FastNeRFConfig, FastNeuSConfig
from models.kinds.fast.model import FastNeuSModel, Fields
from models.kinds.fast.nerf import FastNeRFModel, RadianceFields
from models.kinds.fast.photographed import PhotographedNeRF, PhotographedNeuS


def build_neus(conf: FastNeuSConfig, train: TrainConfig, generator: np.random.Generator) -> FastNeuSModel:
    """A surface."""
    fields = Fields(
        SDFGrid(conf.sdf_grid, generator),
        RenderingNetwork(conf.rendering_network, generator),
        SingleVarianceNetwork(conf.variance_network),
    )
    background = Background(
        DensityGrid(conf.density_grid, generator), RenderingNetwork(conf.background_color, generator), conf.background
    )
    kind = PhotographedNeuS if conf.photographs.exposure else FastNeuSModel
    return kind(fields, conf, train, background)


def build_nerf(conf: FastNeRFConfig, train: TrainConfig, generator: np.random.Generator) -> FastNeRFModel:
    """A radiance field."""
    fields = RadianceFields(
        DensityGrid(conf.density_grid, generator), RenderingNetwork(conf.rendering_network, generator)
    )
    kind = PhotographedNeRF if conf.photographs.exposure else FastNeRFModel
    return kind(fields, conf, train)
