"""Learned exposure of photographs. V photographs, R rays.

Rows belong to photographs. They are initialised as the identity, and their mean is removed by construction, because the
scene could represent it too.
"""

from __future__ import annotations

import numpy as np

from models.machine.backend import jt
from models.structs import Var

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
