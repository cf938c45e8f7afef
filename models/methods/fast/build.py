"""Build the methods sampled in occupied cells, with initialised fields."""

from __future__ import annotations

import numpy as np

from models.config.blocks import TrainConfig
from models.estimators.background import ContractedBackground
from models.estimators.open_surface import OpenSurfaceEstimator
from models.estimators.packed_radiance import RadianceOccupancyEstimator
from models.estimators.packed_surface import SurfaceOccupancyEstimator
from models.fields.color import RenderingNetwork
from models.fields.grids import DensityGrid
from models.fields.protocol import SurfaceFields
from models.fields.registry import COLORS, RADIANCE, SURFACES
from models.fields.sdf import SingleVarianceNetwork
from models.methods.fast.conf import FastNeRFConfig, FastNeuSConfig
from models.methods.radiance import PackedRadianceModel
from models.methods.surface import PackedSurfaceModel
from models.plan import NONE, TrainingPlan


def build_neus(
    conf: FastNeuSConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan
) -> PackedSurfaceModel:
    """A `PackedSurfaceModel` of the conf: inside masks, or open with a background."""
    sdf = SURFACES[conf.surface].build(conf.block(conf.surface), generator)
    color = COLORS[conf.color].build(conf, generator)
    sharpness = SingleVarianceNetwork(conf.variance_network)
    estimator: SurfaceOccupancyEstimator
    if plan.background.value == NONE:
        margin = conf.inside.hull_margin
        estimator = SurfaceOccupancyEstimator(conf.packed, conf.inside, train, plan, sdf, sharpness, margin)
    else:
        density = DensityGrid(conf.density_grid, generator)
        behind = RenderingNetwork(conf.background_color, generator)
        background = ContractedBackground(density, behind, conf.open, plan.sky)
        estimator = OpenSurfaceEstimator(conf.packed, conf.open, train, plan, sdf, sharpness, background)
    fields = SurfaceFields(sdf, color, sharpness)
    return PackedSurfaceModel(fields, estimator, train, plan, conf.packed, conf.patches, conf.photographs)


def build_nerf(
    conf: FastNeRFConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan
) -> PackedRadianceModel:
    """A `PackedRadianceModel` of the conf."""
    field = RADIANCE[conf.radiance_field].build(conf, "fine", generator)
    estimator = RadianceOccupancyEstimator(conf.radiance, train, plan, field)
    return PackedRadianceModel(field, None, estimator, train, plan, conf.photographs)
