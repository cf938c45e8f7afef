"""The fields that a conf can select, for every method. Imports Jittor only when one is built.

A field is selected by the name of its block: `model.surface = sdf_network` uses the block `model.sdf_network`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from models.fields.conf import (
    COLOR_GRID,
    DENSITY_GRID,
    NERF,
    RENDERING_NETWORK,
    SDF_GRID,
    SDF_NETWORK,
    ColorConfig,
    ColorGridConfig,
    DensityGridConfig,
    NerfConfig,
    SdfConfig,
    SdfGridConfig,
)


@dataclass(frozen=True)
class Component:
    """The dataclass of a block, and a constructor of what it selects.

    A signed distance is built from (block, generator); its block has `parameters`, the number of trained parameters,
    `features`, the channels for the colour, and `check()`, which raises ConfigError. The others are built from the
    block `model`, which contains theirs: a colour and an estimator from (model, generator), a radiance field from
    (model, role, generator), where role is the suffix of its network's name in checkpoints if a method has two. The
    blocks of colours and radiance fields are those of `fields.conf`: see `ColorConfig.fits`.
    """

    block: type[Any]
    build: Callable[..., Any]


def _made(module: str, name: str, *given: Any) -> Any:
    """An object of a class in a module of this package, which is imported then."""
    return getattr(import_module(f"models.fields.{module}"), name)(*given)


def _rendering_network(conf: Any, generator: Any) -> Any:
    return _made("color", "RenderingNetwork", conf.block(RENDERING_NETWORK), generator)


def _nerf(conf: Any, role: str, generator: Any) -> Any:
    return _made("radiance", "NerfField", f"nerf_{role}", _made("radiance", "NeRF", conf.block(NERF), generator))


def _density_grid(conf: Any, role: str, generator: Any) -> Any:  # both passes of a method with two share the grid
    grid = _made("grids", "DensityGrid", conf.block(DENSITY_GRID), generator)
    return _made("radiance", "GridRadianceField", grid, _rendering_network(conf, generator))


SURFACES = {
    SDF_NETWORK: Component(SdfConfig, lambda *given: _made("sdf", "SDFNetwork", *given)),
    SDF_GRID: Component(SdfGridConfig, lambda *given: _made("grids", "SDFGrid", *given)),
}
COLORS = {
    RENDERING_NETWORK: Component(ColorConfig, _rendering_network),
    COLOR_GRID: Component(
        ColorGridConfig,
        lambda conf, rng: _made("color", "ColorGrid", conf.block(COLOR_GRID), conf.block(RENDERING_NETWORK), rng),
    ),
}
RADIANCE = {NERF: Component(NerfConfig, _nerf), DENSITY_GRID: Component(DensityGridConfig, _density_grid)}
