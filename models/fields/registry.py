"""The fields that a conf can select, for every method. Imports Jittor only when one is built.

A field is selected by the name of its block: `model.surface = sdf_network` uses the block `model.sdf_network`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

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
    """A signed-distance field: the dataclass of its block and its constructor, (block, generator) -> the field.

    The block has `parameters`, the number of trained parameters; `features`, the channels for the colour; and
    `check()`, which raises ConfigError.
    """

    block: type
    build: Callable[..., Any]


@dataclass(frozen=True)
class JoinedKind:
    """A field of several blocks: the dataclass of the block that names it, and functions of the block `model`.

    `build(conf, generator)` creates a colour; `build(conf, role, generator)` a radiance field, where role is the suffix
    of its network's name in checkpoints if a method has two fields. `check` raises ConfigError: `check(conf, features,
    source)` of a colour unless it fits a surface with this number of features, which the key `source` sets;
    `check(conf)` of a radiance field. `parameters(conf)` is the number of trained parameters. `blocks`: all that
    determine its weights.
    """

    block: type
    build: Callable[..., Any]
    check: Callable[..., None]
    parameters: Callable[[Any], int]
    blocks: tuple[str, ...]


SDF_NETWORK, SDF_GRID = "sdf_network", "sdf_grid"
RENDERING_NETWORK, COLOR_GRID = "rendering_network", "color_grid"
NERF, DENSITY_GRID = "nerf", "density_grid"


def _made(module: str, name: str, *given: Any) -> Any:
    """An object of a class in a module of this package, which is imported then."""
    return getattr(import_module(f"models.fields.{module}"), name)(*given)


def _color_grid_parameters(conf: Any) -> int:
    grid = conf.block(COLOR_GRID)
    return grid.table_parameters + grid.network(conf.block(RENDERING_NETWORK)).parameters


def _check_rendering_network(conf: Any, features: int, source: str) -> None:
    conf.block(RENDERING_NETWORK).check(features, source)


def _check_color_grid(conf: Any, features: int, source: str) -> None:
    conf.block(COLOR_GRID).check()
    _check_rendering_network(conf, features, source)


def _rendering_network(conf: Any, generator: Any) -> Any:
    return _made("color", "RenderingNetwork", conf.block(RENDERING_NETWORK), generator)


def _density_grid(conf: Any, role: str, generator: Any) -> Any:  # both passes of a method with two share the grid
    grid = _made("grids", "DensityGrid", conf.block(DENSITY_GRID), generator)
    return _made("radiance", "GridRadianceField", grid, _rendering_network(conf, generator))


def _check_density_grid(conf: Any) -> None:
    grid, color = conf.block(DENSITY_GRID), conf.block(RENDERING_NETWORK)
    grid.check()
    color.check(grid.features, "model.density_grid.d_feature")
    if color.mode != NO_NORMAL:
        raise ConfigError(
            f"model.rendering_network.mode = {color.mode}: a radiance field has no normals; must be {NO_NORMAL} where "
            f"model.type = {conf.type}"
        )


SURFACES = {
    SDF_NETWORK: FieldKind(SdfConfig, lambda *given: _made("sdf", "SDFNetwork", *given)),
    SDF_GRID: FieldKind(SdfGridConfig, lambda *given: _made("grids", "SDFGrid", *given)),
}
COLORS = {
    RENDERING_NETWORK: JoinedKind(
        ColorConfig,
        _rendering_network,
        _check_rendering_network,
        lambda conf: conf.block(RENDERING_NETWORK).parameters,
        (RENDERING_NETWORK,),
    ),
    COLOR_GRID: JoinedKind(
        ColorGridConfig,
        lambda conf, rng: _made("color", "ColorGrid", conf.block(COLOR_GRID), conf.block(RENDERING_NETWORK), rng),
        _check_color_grid,
        _color_grid_parameters,
        (COLOR_GRID, RENDERING_NETWORK),
    ),
}
RADIANCE = {
    NERF: JoinedKind(
        NerfConfig,
        lambda conf, role, rng: _made(
            "radiance", "NerfField", f"nerf_{role}", _made("radiance", "NeRF", conf.block(NERF), rng)
        ),
        lambda conf: conf.block(NERF).check(3, f"where model.type = {conf.type}"),
        lambda conf: conf.block(NERF).parameters,
        (NERF,),
    ),
    DENSITY_GRID: JoinedKind(
        DensityGridConfig,
        _density_grid,
        _check_density_grid,
        lambda conf: conf.block(DENSITY_GRID).parameters + conf.block(RENDERING_NETWORK).parameters,
        (DENSITY_GRID, RENDERING_NETWORK),
    ),
}
