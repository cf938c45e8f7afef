"""What is learned of photographs: their colours against each other. V photographs, R rays.

Rows belong to photographs. They begin as nothing, and what they have in common, which the scene could take up as well,
is taken out by construction.
"""

from __future__ import annotations

import numpy as np

from models.machine.backend import jt
from models.structs import Var

COLORS = 3
AFFINE = COLORS * (COLORS + 1)  # a matrix, row by row, and an offset


class Exposure(jt.nn.Module):
    """An affine change of colours for each photograph; their mean is the identity."""

    def __init__(self, views: int = 1) -> None:
        super().__init__()
        self.affine = jt.array(np.zeros((views, AFFINE), np.float32))

    def changes(self) -> Var:
        """What each adds to the identity: [V, AFFINE], zero on average."""
        return self.affine - self.affine.mean(dim=0, keepdims=True)

    def execute(self, rgb: Var, view: Var) -> Var:
        """Colours [R, 3] of the scene as the photographs `view` int [R] show them."""
        rows = self.changes()[view]
        matrix = rows[:, : COLORS * COLORS].reshape((-1, COLORS, COLORS))
        return rgb + (matrix * rgb.unsqueeze(1)).sum(dim=2) + rows[:, COLORS * COLORS :]

    def of_picture(self, rgb: Var, view: int) -> Var:
        """The same of a whole picture [H, W, 3] of one photograph."""
        row = self.changes()[view]
        matrix = row[: COLORS * COLORS].reshape((COLORS, COLORS))
        pixels = rgb.reshape((-1, COLORS))
        changed = pixels + jt.matmul(pixels, matrix.transpose()) + row[COLORS * COLORS :].reshape((1, COLORS))
        return changed.reshape(rgb.shape)
