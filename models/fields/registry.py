"""Which signed-distance and colour fields a conf can choose. Knows no Jittor until one is built.

A field is chosen by the name of its block: `model.surface = sdf_network` reads the block `model.sdf_network`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.fields.conf import ColorConfig, SdfConfig, SdfGridConfig


@dataclass(frozen=True)
class FieldKind:
    """A field: the dataclass of its block and what makes it.

    The block of a surface has `features`, the channels it hands to the colour, `parameters`, how many numbers are
    trained, and `check()`, which raises ConfigError.
    """

    block: type
    build: Callable[[Any, np.random.Generator], Any]  # (block, generator) -> a field with fresh parameters


def _sdf_network(block: SdfConfig, generator: np.random.Generator) -> Any:
    from models.fields.sdf import SDFNetwork

    return SDFNetwork(block, generator)


def _sdf_grid(block: SdfGridConfig, generator: np.random.Generator) -> Any:
    from models.fields.sdf_grid import SDFGrid

    return SDFGrid(block, generator)


def _rendering_network(block: ColorConfig, generator: np.random.Generator) -> Any:
    from models.fields.color import RenderingNetwork

    return RenderingNetwork(block, generator)


SDF_NETWORK, SDF_GRID, RENDERING_NETWORK = "sdf_network", "sdf_grid", "rendering_network"
SURFACES: dict[str, FieldKind] = {
    SDF_NETWORK: FieldKind(SdfConfig, _sdf_network),
    SDF_GRID: FieldKind(SdfGridConfig, _sdf_grid),
}
COLORS: dict[str, FieldKind] = {RENDERING_NETWORK: FieldKind(ColorConfig, _rendering_network)}
