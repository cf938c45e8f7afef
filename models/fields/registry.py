"""The fields that a conf can select, for every method. Imports Jittor only when one is built.

A field is selected by the name of its block: `model.surface = sdf_network` uses the block `model.sdf_network`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.config.strict import ConfigError
from models.fields.conf import (
    NO_NORMAL,
    ColorConfig,
    ColorGridConfig,
    DensityGridConfig,
    NerfConfig,
    SdfConfig,
    SdfGridConfig,
)


@dataclass(frozen=True)
class FieldKind:
    """A signed-distance field: the dataclass of its block and its constructor.

    The block has `parameters`, the number of trained parameters; `features`, the channels for the colour; and
    `check()`, which raises ConfigError.
    """

    block: type
    build: Callable[[Any, np.random.Generator], Any]  # (block, generator) -> an initialised field


@dataclass(frozen=True)
class ColorKind:
    """A colour field of one block or several: the dataclass of the block that names it, and its constructor.

    `build(conf, generator)` creates it from the block `model`; `block(name)` returns any block. `check(conf, features,
    source)` raises ConfigError unless it fits a surface with this number of features, which the key `source` sets;
    `parameters(conf)` is the number of trained parameters. `blocks`: all that determine its weights.
    """

    block: type
    build: Callable[[Any, np.random.Generator], Any]
    check: Callable[[Any, int, str], None]
    parameters: Callable[[Any], int]
    blocks: tuple[str, ...]


@dataclass(frozen=True)
class RadianceKind:
    """A radiance field of one block or several: the dataclass of the block that names it, and its constructor.

    `build(conf, role, generator)` creates it from the block `model`, as that of a colour; role is the suffix of its
    network's name in checkpoints if a method has two fields. `check(conf)` raises ConfigError; `parameters(conf)` is
    the number of trained parameters.
    """

    block: type
    build: Callable[[Any, str, np.random.Generator], Any]
    check: Callable[[Any], None]
    parameters: Callable[[Any], int]


def _sdf_network(block: SdfConfig, generator: np.random.Generator) -> Any:
    from models.fields.sdf import SDFNetwork

    return SDFNetwork(block, generator)


def _sdf_grid(block: SdfGridConfig, generator: np.random.Generator) -> Any:
    from models.fields.sdf_grid import SDFGrid

    return SDFGrid(block, generator)


def _rendering_network(conf: Any, generator: np.random.Generator) -> Any:
    from models.fields.color import RenderingNetwork

    return RenderingNetwork(conf.block(RENDERING_NETWORK), generator)


def _color_grid(conf: Any, generator: np.random.Generator) -> Any:
    from models.fields.color_grid import ColorGrid

    return ColorGrid(conf.block(COLOR_GRID), conf.block(RENDERING_NETWORK), generator)


def _check_rendering_network(conf: Any, features: int, source: str) -> None:
    conf.block(RENDERING_NETWORK).check(features, source)


def _check_color_grid(conf: Any, features: int, source: str) -> None:
    conf.block(COLOR_GRID).check()
    _check_rendering_network(conf, features, source)


def _color_grid_parameters(conf: Any) -> int:
    grid = conf.block(COLOR_GRID)
    return grid.table_parameters + grid.network(conf.block(RENDERING_NETWORK)).parameters


SDF_NETWORK, SDF_GRID = "sdf_network", "sdf_grid"
RENDERING_NETWORK, COLOR_GRID = "rendering_network", "color_grid"
SURFACES: dict[str, FieldKind] = {
    SDF_NETWORK: FieldKind(SdfConfig, _sdf_network),
    SDF_GRID: FieldKind(SdfGridConfig, _sdf_grid),
}
COLORS: dict[str, ColorKind] = {
    RENDERING_NETWORK: ColorKind(
        ColorConfig,
        _rendering_network,
        _check_rendering_network,
        lambda conf: conf.block(RENDERING_NETWORK).parameters,
        (RENDERING_NETWORK,),
    ),
    COLOR_GRID: ColorKind(
        ColorGridConfig, _color_grid, _check_color_grid, _color_grid_parameters, (COLOR_GRID, RENDERING_NETWORK)
    ),
}


def _nerf(conf: Any, role: str, generator: np.random.Generator) -> Any:
    from models.fields.nerf import NeRF
    from models.fields.radiance import NerfField

    return NerfField(f"nerf_{role}", NeRF(conf.block(NERF), generator))


def _check_nerf(conf: Any) -> None:
    conf.block(NERF).check(3, f"where model.type = {conf.type}")


def _density_grid(conf: Any, role: str, generator: np.random.Generator) -> Any:
    from models.fields.color import RenderingNetwork
    from models.fields.density_grid import DensityGrid
    from models.fields.radiance import GridRadianceField

    del role  # both passes of a method with two share the grid
    grid = DensityGrid(conf.block(DENSITY_GRID), generator)
    return GridRadianceField(grid, RenderingNetwork(conf.block(RENDERING_NETWORK), generator))


def _check_density_grid(conf: Any) -> None:
    grid, color = conf.block(DENSITY_GRID), conf.block(RENDERING_NETWORK)
    grid.check()
    color.check(grid.features, "model.density_grid.d_feature")
    if color.mode != NO_NORMAL:
        raise ConfigError(
            f"model.rendering_network.mode = {color.mode}: a radiance field has no normals; must be {NO_NORMAL} where "
            f"model.type = {conf.type}"
        )


NERF, DENSITY_GRID = "nerf", "density_grid"
RADIANCE: dict[str, RadianceKind] = {
    NERF: RadianceKind(NerfConfig, _nerf, _check_nerf, lambda conf: conf.block(NERF).parameters),
    DENSITY_GRID: RadianceKind(
        DensityGridConfig,
        _density_grid,
        _check_density_grid,
        lambda conf: conf.block(DENSITY_GRID).parameters + conf.block(RENDERING_NETWORK).parameters,
    ),
}
