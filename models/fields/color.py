"""The colour network c(x, v, n, feature) -> RGB, alone or with a feature grid of its own."""

from __future__ import annotations

import numpy as np

from models.fields.conf import MODE_INPUTS, NORMALS, VIEW, ColorConfig, ColorGridConfig
from models.fields.layers import Layered, first_table, uniform_init
from models.machine.backend import jt
from models.ops.color_inputs import color_inputs
from models.ops.color_mlp import color
from models.ops.grid import grid_encode
from models.ops.network import Weights
from models.ops.sizes import ColorSizes
from models.structs import Var


class RenderingNetwork(Layered):
    """A ReLU MLP with weight norm and a final sigmoid (NeuS, arXiv 2106.10689, appendix E); a `ColorField`."""

    def __init__(self, conf: ColorConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf
        widths = conf.widths
        has_normals = NORMALS in MODE_INPUTS[conf.mode]
        self._sizes = ColorSizes(
            layers=len(widths),
            squeeze=int(conf.squeeze_out),
            fixed=widths[0][0] - conf.d_feature - 3 * has_normals,
            normals=int(has_normals),
            features=conf.d_feature,
            widths=tuple(width for pair in widths for width in pair),
        )
        self.add_layers((uniform_init(rng, inputs, outputs) for inputs, outputs in widths), conf.weight_norm)

    def execute(self, points: Var, normals: Var, view_dirs: Var, features: Var) -> Var:
        """RGB [P, 3] at points, in [0, 1] if `squeeze_out`; see `ColorField`.

        As published, the normals are the gradient of the SDF, not normalised.
        """
        weights = Weights([layer.parts() for layer in self.layers()])
        sees = VIEW in MODE_INPUTS[self.conf.mode]
        fixed = color_inputs(points, view_dirs, self.conf.multires_view) if sees else points
        return color(fixed, normals, features, weights, self._sizes)


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
