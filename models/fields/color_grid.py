"""A colour with a feature grid of its own."""

from __future__ import annotations

import numpy as np

from models.fields.color import RenderingNetwork
from models.fields.conf import ColorConfig, ColorGridConfig
from models.fields.grid_field import first_table
from models.machine.backend import jt
from models.ops.grid import grid_encode
from models.structs import Var


class ColorGrid(jt.nn.Module):
    """Grid and network; a `ColorField`.

    Without it, the colour depends on the grid of the distance, and edges of the texture become bumps of the surface.
    PermutoSDF (arXiv 2211.12562, section 4) also has one grid for the distance and one for the colour.
    """

    def __init__(self, conf: ColorGridConfig, network: ColorConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self._sizes = conf.sizes
        self.table = first_table(self._sizes, rng)
        self.network = RenderingNetwork(conf.network(network), rng)

    def execute(self, points: Var, normals: Var, view_dirs: Var, features: Var) -> Var:
        """See `ColorField`; the features of the grid follow those of the distance field."""
        own = grid_encode(points, self.table, self._sizes)
        return self.network(points, normals, view_dirs, jt.concat([features, own], dim=1))
