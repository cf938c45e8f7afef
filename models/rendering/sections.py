"""The sections of rays: each begins at a depth and ends at the next one. Pure functions on Vars.

R rays, N sections; depths [R, N] are ascending section starts along the unit direction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.volrend import points_along
from models.structs import Var

# Of a density, per working-frame unit: of the light that meets it, a hundredth of the sphere's diameter absorbs 40 %.
SURFACE_DENSITY = 25.0
SMALLEST_SLOPE = 1e-12  # of a density, to divide by where it is constant
SEEN_OPACITY = 1e-2  # below it a ray's distance is the mean of next to nothing


@dataclass(frozen=True)
class Sections:
    """Where the sections of R rays lie."""

    starts: Var  # [R, N]
    lengths: Var  # [R, N]
    origins: Var  # [R, 3]
    directions: Var  # [R, 3], unit

    @property
    def middles(self) -> Var:
        """[R, N]."""
        return self.starts + self.lengths * 0.5

    def points(self, depths: Var) -> Var:
        """The points at depths [R, N]: [R, N, 3], constants."""
        return points_along(self.origins, self.directions, depths).stop_grad()

    def views(self) -> Var:
        """The direction of each section, one below the other: [R N, 3], constants."""
        rows, count = self.starts.shape
        return self.directions.unsqueeze(1).broadcast((rows, count, 3)).reshape((-1, 3)).stop_grad()


def over_background(rgb: Var, opacity: Var, background_rgb: np.ndarray | None) -> Var:
    """Colours [R, 3] of what has opacity [R, 1] before a constant colour [3]; None for black."""
    if background_rgb is None:
        return rgb
    return rgb + jt.array(background_rgb.reshape(1, 3).astype(np.float32)) * (1.0 - opacity)


def expected_distance(weights: np.ndarray, depths: np.ndarray, opacity: np.ndarray) -> np.ndarray:
    """Mean depth by weight, [R, N], [R, N], [R, 1] -> [R, 1]; 0 where next to nothing is seen."""
    summed = (weights * depths).sum(axis=1, keepdims=True)
    return np.divide(summed, opacity, out=np.zeros_like(summed), where=opacity > SEEN_OPACITY)
