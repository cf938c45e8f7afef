"""Build the methods sampled in occupied cells, with initialised fields."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from models.config.blocks import TrainConfig
from models.estimators.background import ContractedBackground
from models.estimators.open_surface import OpenSurfaceEstimator
from models.estimators.packed import Region
from models.estimators.packed_radiance import RadianceOccupancyEstimator
from models.estimators.packed_surface import SurfaceCells, SurfaceOccupancyEstimator
from models.fields.color import RenderingNetwork
from models.fields.grids import DensityGrid, GridField
from models.fields.protocol import RadianceFields, SurfaceFields
from models.fields.registry import COLORS, RADIANCE, SDF_GRID, SURFACES
from models.fields.sdf import SingleVarianceNetwork
from models.methods.fast.conf import FastNeRFConfig, FastNeuSConfig
from models.methods.radiance import PackedRadianceModel
from models.methods.surface import PackedSurfaceModel
from models.plan import NONE, TrainingPlan

THIN = 0.05  # initial density with a uniform backdrop; below the threshold, so that empty cells are pruned


def build_neus(
    conf: FastNeuSConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan
) -> PackedSurfaceModel:
    """A `PackedSurfaceModel` of the conf: inside masks, or open with a background."""
    sdf = SURFACES[conf.surface].build(conf.block(conf.surface), generator)
    if conf.surface == SDF_GRID:
        sdf.begin_with_sphere(plan.radius, is_inverted=plan.is_interior)
    color = COLORS[conf.color].build(conf, generator)
    sharpness = SingleVarianceNetwork(conf.variance_network)
    fields, grids = SurfaceFields(sdf, color, sharpness), _grids(sdf)
    estimator: SurfaceOccupancyEstimator | OpenSurfaceEstimator
    if plan.background.value == NONE:
        region = Region(conf.packed, train, plan, grids)
        surface = SurfaceCells(region, sdf, sharpness, conf.inside.shell)
        estimator = SurfaceOccupancyEstimator(conf.inside, region, surface)
    else:
        grid = conf.density_grid if plan.sky is None else replace(conf.density_grid, density=THIN)
        density = DensityGrid(grid, generator)
        behind = RenderingNetwork(conf.background_color, generator)
        region = Region(conf.packed, train, plan, [*grids, density])
        surface = SurfaceCells(region, sdf, sharpness, conf.open.shell)
        background = ContractedBackground(density, behind, conf.open, plan.sky)
        estimator = OpenSurfaceEstimator(conf.open, region, surface, background)
    return PackedSurfaceModel(fields, estimator, train, plan, conf.packed, conf.patches, conf.photographs)


def build_nerf(
    conf: FastNeRFConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan
) -> PackedRadianceModel:
    """A `PackedRadianceModel` of the conf."""
    field = RADIANCE[conf.radiance_field].build(conf, "fine", generator)
    region = Region(conf.radiance, train, plan, _grids(*field.networks.values()))
    estimator = RadianceOccupancyEstimator(conf.radiance, region, field)
    return PackedRadianceModel(RadianceFields(field), estimator, train, plan, conf.photographs)


def _grids(*networks: object) -> list[GridField]:
    """The networks that have levels."""
    return [one for one in networks if isinstance(one, GridField)]
