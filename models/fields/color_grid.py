"""A colour with a feature grid of its own."""

from __future__ import annotations

import numpy as np

from models.fields.color import RenderingNetwork
from models.fields.conf import ColorConfig, ColorGridConfig
from models.fields.grid_field import first_table
from models.machine.backend import jt
from models.ops.grid import grid_encode
from models.structs import Var


class ColorGrid(RenderingNetwork):
    """Grid and network; a `ColorField`.

    Without it, the colour depends on the grid of the distance, and edges of the texture become bumps of the surface.
    As in PermutoSDF (arXiv 2211.12562), the colour network takes features of the distance field and of its own grid.
    """

    def __init__(self, conf: ColorGridConfig, network: ColorConfig, rng: np.random.Generator) -> None:
        super().__init__(conf.network(network), rng)
        self._grid = conf.sizes
        self.table = first_table(self._grid, rng)

    def execute(self, points: Var, normals: Var, view_dirs: Var, features: Var) -> Var:
        """See `ColorField`; the features of the grid follow those of the distance field."""
        own = grid_encode(points, self.table, self._grid)
        return super().execute(points, normals, view_dirs, jt.concat([features, own], dim=1))
