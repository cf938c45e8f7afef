"""Radiance fields for volume rendering: NeRF's network, and a density grid with a colour network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.fields.color import RenderingNetwork
from models.fields.density_grid import LARGEST_LOG, DensityGrid
from models.fields.nerf import NeRF
from models.machine.backend import jt
from models.ops.elementwise import softplus
from models.structs import RadianceOutput, Var

SMALLEST_SLOPE = 1e-12  # smallest divisor, for a constant density
NORMAL_STEP = 0.01  # working-frame units to either side of a point, for the gradient of the density
SMALLEST_DENSITY = 1e-12  # smaller densities count as empty


@dataclass(frozen=True)
class NerfField:
    """NeRF's network (arXiv 2003.08934); a `RadianceField` and also its `RadianceAtWeights`.

    The density is softplus of the network's output instead of its positive part, so that a field that is initially
    empty has gradients (mip-NeRF, arXiv 2103.13415, appendix).
    """

    name: str  # in checkpoints
    network: NeRF

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """NeRF's network by its name in checkpoints."""
        return {self.name: self.network}

    def at_weights(self) -> NerfField:
        """The field itself."""
        return self

    def density(self, points: Var) -> Var:
        """See `RadianceAtWeights`."""
        return softplus(self.network(points, jt.zeros((points.shape[0], 3)))[0])

    def evaluate(self, points: Var, view_dirs: Var) -> RadianceOutput:
        """See `RadianceAtWeights`."""
        raw, rgb = self.network(points, view_dirs)
        return RadianceOutput(softplus(raw), rgb.sigmoid())

    def with_normals(self, points: Var, view_dirs: Var) -> tuple[RadianceOutput, Var]:
        """See `RadianceAtWeights`; by central differences of the network's output.

        Its gradient has the direction of the density's and does not vanish where the density does.
        """
        steps = NORMAL_STEP * np.concatenate([np.eye(3), -np.eye(3)]).astype(np.float32)
        around = (points.unsqueeze(0) + jt.array(steps).unsqueeze(1)).reshape((-1, 3))
        raw = self.network(around, jt.zeros((around.shape[0], 3)))[0].reshape((2, 3, points.shape[0]))
        return self.evaluate(points, view_dirs), _outward((raw[0] - raw[1]).transpose((1, 0)))

    def raw_of(self, density: np.ndarray) -> np.ndarray:
        """The network's output for a density of at least SMALLEST_DENSITY: the inverse of softplus."""
        density = np.maximum(density, SMALLEST_DENSITY)
        return density + np.log(-np.expm1(-density))


@dataclass(frozen=True)
class GridRadianceField:
    """A density grid, and a colour network of its features (Instant-NGP, arXiv 2201.05989)."""

    grid: DensityGrid
    color: RenderingNetwork

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The networks of density and colour by their names in checkpoints."""
        return {"density_grid": self.grid, "color_network": self.color}

    def at_weights(self) -> GridRadianceField:
        """The field itself."""
        return self

    def density(self, points: Var) -> Var:
        """See `RadianceAtWeights`."""
        return self.grid.evaluate(points)[0]

    def evaluate(self, points: Var, view_dirs: Var) -> RadianceOutput:
        """See `RadianceAtWeights`."""
        density, feature = self.grid.evaluate(points)
        return RadianceOutput(density, self.color(points, points, view_dirs, feature))

    def with_normals(self, points: Var, view_dirs: Var) -> tuple[RadianceOutput, Var]:
        """See `RadianceAtWeights`."""
        density, feature, slope = self.grid.with_slope(points)
        return RadianceOutput(density, self.color(points, slope, view_dirs, feature)), _outward(slope)

    def raw_of(self, density: np.ndarray) -> np.ndarray:
        """The logarithm, limited below by a negligible density."""
        return np.log(np.maximum(density, np.exp(-LARGEST_LOG)))


def _outward(slope: Var) -> Var:
    """Unit vectors opposite to gradients [P, 3]."""
    return -slope / jt.maximum(slope.sqr().sum(dim=1, keepdims=True).sqrt(), SMALLEST_SLOPE)
