"""A signed-distance field from outside the package: three planes of features and a sphere (EG3D, arXiv 2112.07945)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.config.strict import limits
from models.machine.backend import jt
from models.structs import FieldOutput, Var

PLANES = ((0, 1), (1, 2), (2, 0))  # the axes of each


@dataclass(frozen=True)
class TriPlaneConfig:
    """The block `model.tri_plane`."""

    resolution: int = limits(16, at_least=2)
    features: int = limits(7, at_least=1)
    radius: float = limits(0.5, above=0)

    @property
    def parameters(self) -> int:
        return 1 + 3 * self.resolution**2 * (1 + self.features)

    def check(self) -> None:
        """Every value within its limits will do."""


class TriPlane(jt.nn.Module):
    """The distance from a sphere plus the sum of what three planes hold; a `DistanceField`."""

    def __init__(self, conf: TriPlaneConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf
        shape = (3 * conf.resolution**2, 1 + conf.features)
        self.planes = jt.array(rng.normal(0.0, 1e-2, shape).astype(np.float32))
        self.radius = jt.array(np.float32([conf.radius]))

    def at_weights(self):
        return self

    def distance(self, points: Var) -> Var:
        return self.evaluate(points).sdf

    def evaluate(self, points: Var) -> FieldOutput:
        length = (points.sqr().sum(dim=1, keepdims=True) + 1e-12).sqrt()
        values, slopes = jt.zeros((points.shape[0], self.planes.shape[1])), [jt.zeros((points.shape[0], 1))] * 3
        for number, (first, second) in enumerate(PLANES):
            found, along = self._plane(number, points[:, first], points[:, second])
            values = values + found
            slopes[first], slopes[second] = slopes[first] + along[0], slopes[second] + along[1]
        gradient = points / length + jt.concat(slopes, dim=1)
        return FieldOutput(length - self.radius + values[:, :1], values[:, 1:], gradient)

    def _plane(self, number: int, u: Var, v: Var) -> tuple[Var, tuple[Var, Var]]:
        """Bilinear interpolation of the values [P, 1 + F], and the slopes of the first along both axes [P, 1]."""
        count = self.conf.resolution
        scale = 0.5 * (count - 1)
        x, y = ((axis + 1.0) * scale for axis in (u, v))
        left, low = (jt.minimum(jt.maximum(value.floor(), 0.0), count - 2.0).int32() for value in (x, y))
        along, up = (x - left.float32()).unsqueeze(1), (y - low.float32()).unsqueeze(1)
        row = number * count * count + left * count + low
        corners = [self.planes[row + step] for step in (0, count, 1, count + 1)]
        values = (corners[0] * (1 - along) + corners[1] * along) * (1 - up)
        values = values + (corners[2] * (1 - along) + corners[3] * along) * up
        by_u = (corners[1] - corners[0]) * (1 - up) + (corners[3] - corners[2]) * up
        by_v = (corners[2] - corners[0]) * (1 - along) + (corners[3] - corners[1]) * along
        return values, (by_u[:, :1] * scale, by_v[:, :1] * scale)
