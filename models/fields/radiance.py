"""Radiance fields for volume rendering: NeRF's network (arXiv 2003.08934), and a density grid with a colour network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.fields.color import RenderingNetwork
from models.fields.conf import NerfConfig
from models.fields.grids import LARGEST_LOG, DensityGrid
from models.fields.layers import Linear, uniform_init
from models.machine.backend import jt
from models.ops.elementwise import softplus
from models.ops.nerf_mlp import nerf
from models.ops.network import Weights
from models.ops.sizes import NerfSizes
from models.structs import RadianceOutput, Var

SMALLEST_SLOPE = 1e-12  # smallest divisor, for a constant density
NORMAL_STEP = 0.01  # working-frame units to either side of a point, for the gradient of the density
SMALLEST_DENSITY = 1e-12  # smaller densities count as empty


class NeRF(jt.nn.Module):
    """An MLP (point, view direction) -> (density, RGB), both before their activation (softplus, sigmoid).

    On inverted-sphere points (NeRF++, arXiv 2010.07492) it is the background of a surface.
    """

    def __init__(self, conf: NerfConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf

        def linear(inputs: int, outputs: int) -> Linear:
            return Linear(*uniform_init(rng, inputs, outputs), weight_norm=False)

        *_, view, color = conf.heads
        self.pts_linears = jt.nn.ModuleList([linear(*widths) for widths in conf.trunk])
        self.views_linears = jt.nn.ModuleList([linear(*view)])
        self.feature_linear = linear(conf.W, conf.W)
        self.alpha_linear = linear(conf.W, 1)
        self.rgb_linear = linear(*color)
        self._sizes = NerfSizes(
            trunk=len(conf.trunk),
            coordinates=conf.d_in,
            octaves=conf.multires,
            view_octaves=conf.multires_view,
            skips=conf.skips,
            widths=tuple(entry for pair in [*conf.trunk, *conf.heads] for entry in pair),
        )

    def execute(self, points: Var, view_dirs: Var, selected: Var | None = None) -> tuple[Var, Var]:
        """Raw density [P, 1] and raw RGB [P, 3], differentiable in the parameters.

        Args:
            points: [P, 4] inverted-sphere coordinates (x / r, 1 / r), or [P, 3].
            view_dirs: [P, 3], unit, from the camera outwards.
            selected: bool [P], where the network is evaluated; both outputs are 0 elsewhere. None for everywhere.
        """
        heads = [self.feature_linear, self.alpha_linear]  # one layer; its last row is the density
        joined = (jt.concat([head.weight for head in heads]), jt.concat([head.bias for head in heads]))
        after = [*self.views_linears, self.rgb_linear]
        layers = [(layer.weight, layer.bias) for layer in self.pts_linears]
        weights = Weights([*layers, joined, *((layer.weight, layer.bias) for layer in after)])
        return nerf(points, view_dirs, weights, self._sizes, selected)


@dataclass(frozen=True)
class NerfField:
    """NeRF's network (arXiv 2003.08934); a `RadianceField`.

    The density is softplus of the network's output instead of its positive part, so that a field that is initially
    empty has gradients (mip-NeRF, arXiv 2103.13415, appendix).
    """

    name: str  # in checkpoints
    network: NeRF

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """NeRF's network by its name in checkpoints."""
        return {self.name: self.network}

    @property
    def leveled(self) -> tuple[()]:
        """It has no levels."""
        return ()

    def density(self, points: Var) -> Var:
        """See `RadianceField`."""
        return softplus(self.network(points, jt.zeros((points.shape[0], 3)))[0])

    def evaluate(self, points: Var, view_dirs: Var) -> RadianceOutput:
        """See `RadianceField`."""
        raw, rgb = self.network(points, view_dirs)
        return RadianceOutput(softplus(raw), rgb.sigmoid())

    def with_normals(self, points: Var, view_dirs: Var) -> tuple[RadianceOutput, Var]:
        """See `RadianceField`; by central differences of the network's output.

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

    @property
    def leveled(self) -> tuple[DensityGrid]:
        """The grid of the density."""
        return (self.grid,)

    def density(self, points: Var) -> Var:
        """See `RadianceField`."""
        return self.grid.evaluate(points)[0]

    def evaluate(self, points: Var, view_dirs: Var) -> RadianceOutput:
        """See `RadianceField`."""
        density, feature = self.grid.evaluate(points)
        return RadianceOutput(density, self.color(points, points, view_dirs, feature))

    def with_normals(self, points: Var, view_dirs: Var) -> tuple[RadianceOutput, Var]:
        """See `RadianceField`."""
        density, feature, slope = self.grid.with_slope(points)
        return RadianceOutput(density, self.color(points, slope, view_dirs, feature)), _outward(slope)

    def raw_of(self, density: np.ndarray) -> np.ndarray:
        """The logarithm, limited below by a negligible density."""
        return np.log(np.maximum(density, np.exp(-LARGEST_LOG)))


def _outward(slope: Var) -> Var:
    """Unit vectors opposite to gradients [P, 3]."""
    return -slope / jt.maximum(slope.sqr().sum(dim=1, keepdims=True).sqrt(), SMALLEST_SLOPE)
