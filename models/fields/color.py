"""The colour network c(x, v, n, feature) -> RGB, alone or with a feature grid of its own, and the learned exposure of
photographs. P points, V photographs, R rays.

Rows of an exposure belong to photographs. They are initialised as the identity, and their mean is removed by
construction, because the scene could represent it too.
"""

from __future__ import annotations

import numpy as np

from models.fields.conf import MODE_INPUTS, NORMALS, VIEW, ColorConfig, ColorGridConfig
from models.fields.layers import Layered, first_table, uniform_init
from models.machine.backend import jt
from models.ops.color_mlp import color, color_inputs
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


COLORS = 3
AFFINE = COLORS * (COLORS + 1)  # a matrix, row by row, and an offset


class Exposure(jt.nn.Module):
    """An affine colour transform for each photograph; the mean is the identity."""

    def __init__(self, views: int = 1) -> None:
        super().__init__()
        self.affine = jt.array(np.zeros((views, AFFINE), np.float32))

    def changes(self) -> Var:
        """The differences from the identity, [V, AFFINE], with mean zero."""
        return self.affine - self.affine.mean(dim=0, keepdims=True)

    def execute(self, rgb: Var, view: Var) -> Var:
        """Colours [R, 3] of the scene with the exposure of photographs `view` int [R]."""
        rows = self.changes()[view]
        matrix = rows[:, : COLORS * COLORS].reshape((-1, COLORS, COLORS))
        return rgb + (matrix * rgb.unsqueeze(1)).sum(dim=2) + rows[:, COLORS * COLORS :]

    def of_picture(self, rgb: Var, view: int) -> Var:
        """The same for a whole image [H, W, 3] of one photograph."""
        row = self.changes()[view]
        matrix = row[: COLORS * COLORS].reshape((COLORS, COLORS))
        pixels = rgb.reshape((-1, COLORS))
        changed = pixels + jt.matmul(pixels, matrix.transpose()) + row[COLORS * COLORS :].reshape((1, COLORS))
        return changed.reshape(rgb.shape)
