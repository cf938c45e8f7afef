"""Build the methods sampled in occupied cells, with initialised fields."""

from __future__ import annotations

import numpy as np

from models.config.blocks import TrainConfig
from models.estimators.background import ContractedBackground
from models.estimators.packed_radiance import RadianceOccupancyEstimator
from models.estimators.packed_surface import SurfaceOccupancyEstimator
from models.fields.color import RenderingNetwork
from models.fields.density_grid import DensityGrid
from models.fields.protocol import SurfaceFields
from models.fields.registry import COLORS, RADIANCE, SURFACES
from models.fields.sharpness import SingleVarianceNetwork
from models.methods.fast.conf import FastNeRFConfig, FastNeuSConfig
from models.methods.radiance import PackedRadianceModel
from models.methods.surface import PackedSurfaceModel


def build_neus(conf: FastNeuSConfig, train: TrainConfig, generator: np.random.Generator) -> PackedSurfaceModel:
    """A `PackedSurfaceModel` of the conf."""
    sdf = SURFACES[conf.surface].build(conf.block(conf.surface), generator)
    color = COLORS[conf.color].build(conf, generator)
    sharpness = SingleVarianceNetwork(conf.variance_network)
    background = ContractedBackground(
        DensityGrid(conf.density_grid, generator), RenderingNetwork(conf.background_color, generator), conf.background
    )
    estimator = SurfaceOccupancyEstimator(
        conf.packed, train.end_iter, train.mask_weight > 0, sdf, sharpness, background
    )
    fields = SurfaceFields(sdf, color, sharpness)
    return PackedSurfaceModel(fields, estimator, train, conf.packed, conf.patches, conf.photographs)


def build_nerf(conf: FastNeRFConfig, train: TrainConfig, generator: np.random.Generator) -> PackedRadianceModel:
    """A `PackedRadianceModel` of the conf."""
    field = RADIANCE[conf.radiance_field].build(conf, "fine", generator)
    estimator = RadianceOccupancyEstimator(conf.radiance, train.end_iter, train.mask_weight > 0, field)
    return PackedRadianceModel(field, estimator, train, conf.radiance, conf.photographs)
