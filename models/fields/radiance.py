"""Radiance fields for volume rendering: NeRF's network, and a density grid with a colour network."""

from __future__ import annotations

from dataclasses import dataclass

from models.fields.color import RenderingNetwork
from models.fields.density_grid import DensityGrid, density_of
from models.fields.nerf import NeRF
from models.machine.backend import jt
from models.ops.elementwise import softplus
from models.structs import RadianceOutput, Var

SMALLEST_SLOPE = 1e-12  # of a density, to divide by where it is constant


@dataclass(frozen=True)
class NerfField:
    """NeRF's network (arXiv 2003.08934); a `RadianceField` and, since nothing is prepared, a `RadianceAtWeights`.

    The density is softplus of the network's output instead of its positive part, so that no field that begins empty
    stays empty (mip-NeRF, arXiv 2103.13415, appendix).
    """

    name: str  # in checkpoints
    network: NeRF

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The one network."""
        return {self.name: self.network}

    def at_weights(self) -> NerfField:
        """Itself."""
        return self

    def density(self, points: Var) -> Var:
        """See `RadianceAtWeights`."""
        return softplus(self.network(points, jt.zeros((points.shape[0], 3)))[0])

    def evaluate(self, points: Var, view_dirs: Var) -> RadianceOutput:
        """See `RadianceAtWeights`."""
        raw, rgb = self.network(points, view_dirs)
        return RadianceOutput(softplus(raw), rgb.sigmoid())


@dataclass(frozen=True)
class GridRadianceField:
    """A density grid, and a colour network that reads its features (Instant-NGP, arXiv 2201.05989)."""

    grid: DensityGrid
    color: RenderingNetwork

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """Density, colour."""
        return {"density_grid": self.grid, "color_network": self.color}

    def at_weights(self) -> _GridAtWeights:
        """The field bound to its current parameters."""
        return _GridAtWeights(self.grid.at_weights(), self.color)


@dataclass(frozen=True)
class _GridAtWeights:
    grid: object  # of DensityGrid.at_weights
    color: RenderingNetwork

    def density(self, points: Var) -> Var:
        return self.grid.evaluate(points).density

    def evaluate(self, points: Var, view_dirs: Var) -> RadianceOutput:
        found = self.grid.evaluate(points)
        return RadianceOutput(found.density, self.color(points, points, view_dirs, found.feature))

    def with_normals(self, points: Var, view_dirs: Var) -> tuple[RadianceOutput, Var]:
        """The same, and unit normals [P, 3] against the slope of the density."""
        found, slope = self.grid.with_slope(points)
        normals = -slope / jt.maximum(slope.sqr().sum(dim=1, keepdims=True).sqrt(), SMALLEST_SLOPE)
        return RadianceOutput(density_of(found.raw), self.color(points, slope, view_dirs, found.feature)), normals
