"""The background outside the unit sphere: a radiance field on a grid over contracted space (mip-NeRF 360).

arXiv 2111.12077. A point at distance r > 1 from the origin is contracted to distance 2 - 1 / r; half of that is its
position in the cube of the grid. The length of an interval is a constant fraction of its distance from the origin. The
density is per unit of this fraction, so that the opacity of an interval does not depend on its distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from data.cameras import evenly_spaced
from data.rays import Rays
from data.scenes.frustum import frustum_distances, squared_radii
from data.scenes.scene import Scene
from models.estimators.conf import OpenConfig
from models.estimators.occupancy import EmptyCells, OccupancyGrid
from models.estimators.visibility import fitted, transmitted
from models.fields.color import RenderingNetwork
from models.fields.grids import DensityGrid
from models.machine.backend import jt
from models.ops.march import OCCUPIED, PackedSamples
from models.ops.outside import BEFORE, BEHIND, Outside, occupied, outside_samples
from models.ops.sizes import BACKGROUND_RADIUS
from models.ops.volrend import alpha_from_density
from models.structs import Var

# Fraction of their length over which samples between camera and region absorb. With the full length, the initial
# density occludes the region, and the background fits each image directly in front of its camera. DTU scan 24, held-out
# PSNR after 1,000 steps: 14.4 dB with 1, 18.6 dB with 0.02, 18.0 dB without samples there.
NEAR_SHARE = 0.02
# Fraction of the images that must see a cell before the region for it to have samples there: the density of a cell seen
# by few images, directly in front of them, is ambiguous. The same scene after 3,000 steps: 21.6 dB with 0, 22.8 dB with
# 0.2, 22.5 dB without samples there. Images that see a cell behind the region do not count: to them, a cell before
# another camera may have the colour of whatever is farther away, and this camera would see nothing else.
LEAST_SEEN = 0.2
MOST_COUNTED = 100  # maximum number of images used for this
THIN = 0.05  # initial density with a uniform backdrop; below the threshold, so that empty cells are pruned
EXACTLY = 1.5 / 255  # colours with a smaller difference count as equal


class ContractedBackground:
    """Density and colour outside the sphere, and its occupancy grid."""

    def __init__(
        self, density: DensityGrid, color: RenderingNetwork, conf: OpenConfig, sky: Sequence[float] | None
    ) -> None:
        """`sky`: the colour [3] of a plain backdrop, and of rays that nothing absorbs; None without one."""
        self.density, self.color, self.conf = density, color, conf
        self.grid = OccupancyGrid(_shell(conf.cells))
        self.empty_cells = EmptyCells(self.grid, conf.threshold)
        self.is_shared = np.ones(self.grid.hull.shape, bool)  # cells that enough images see before the region
        self._kept: tuple[np.ndarray, np.ndarray, Var] | None = None  # the cells and what `_states` made of them
        self.is_plain = sky is not None
        self.sky = np.array(sky or np.zeros(3), np.float32)  # colour of rays that nothing absorbs

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The networks of density and colour, by their names in checkpoints."""
        return {"background_density": self.density, "background_color": self.color}

    def fit(self, scene: Scene) -> None:
        """Count the images that see each cell; before a plain backdrop, set a low initial density."""
        self.is_shared[self.grid.hull] = _seen_share(expanded(self.grid.centres()), scene) >= LEAST_SEEN
        if not self.is_plain:
            return
        bias = self.density.layers()[-1].bias
        bias.update(jt.array(np.concatenate([[np.log(THIN)], bias.numpy()[1:]]).astype(np.float32)))
        bias.start_grad()

    def shows_alone(self, rgb: Var) -> Var:
        """Which colours [R, 3] are exactly that of a uniform backdrop, if there is one: bool [R].

        In photographs there are hardly any. In rendered images these are all pixels beside the object; without this
        test, surfaces of that colour could remain there.
        """
        return (rgb - jt.array(self.sky)).abs().max(dim=1) < EXACTLY

    def place(
        self, rays: Rays, jitter: np.ndarray | Var, transmits: Var, most: int, budget: int
    ) -> tuple[PackedSamples, Var]:
        """The visible samples of the first rays that fit a budget, and the offsets of the samples with evaluated
        opacity.

        transmits: bool [R], whether the ray sees what is behind the region; most: the maximum number of evaluated
        samples.
        """
        sizes = Outside(len(self.grid.cells), most, np.float64(self.conf.section), np.float64(self.grid.near_plane))
        asked = outside_samples(rays, jitter, transmits, self._states, sizes)
        alpha = self._alpha(asked.points, asked.directions)
        return fitted(asked, transmitted(alpha, asked.offsets), budget, exact=False), asked.offsets

    def shown(self, rays: Rays, jitter: np.ndarray, transmits: Var, budget: int) -> PackedSamples:
        """The samples of an image, without unused rows, of the first rays that fit a budget; waits for the device.

        Samples behind opaque ones are included: finding them would take about as long as evaluating them.
        """
        found, is_before = self.occupied(rays, jitter, transmits.numpy())
        return fitted(found, is_before.logical_or(transmits[found.rays]), budget, exact=True)

    def occupied(
        self, rays: Rays, jitter: np.ndarray, transmits: np.ndarray | None = None
    ) -> tuple[PackedSamples, Var]:
        """All candidates in occupied cells, and which are between camera and sphere, bool [N]; N is at least 1.

        transmits: bool [R], which rays have candidates behind the sphere; None for all.
        """
        return occupied(rays, jitter, self._states.numpy(), self.conf.section, self.grid.near_plane, transmits)

    @property
    def _states(self) -> Var:
        """The states of the cells for `outside_samples`."""
        key = self.grid.cells, self.is_shared
        if self._kept is None or self._kept[0] is not key[0] or self._kept[1] is not key[1]:
            states = (self.grid.cells == OCCUPIED) * np.where(self.is_shared, BEFORE, BEHIND)
            self._kept = (*key, jt.array(states.astype(np.uint8)).stop_grad())
        return self._kept[2]

    def _alpha(self, points: Var, directions: Var) -> Var:
        with jt.no_grad():
            return alpha_from_density(self.density.evaluate(points)[0], self._lengths(points, directions))

    def _lengths(self, points: Var, directions: Var) -> Var:
        """The lengths [P, 1] over which samples absorb: an interval, or NEAR_SHARE of it between camera and region.

        A sample is between camera and region if its ray still approaches the origin there.
        """
        is_before = (points * directions).sum(dim=1, keepdims=True) < 0
        return self.conf.section * (1.0 - (1.0 - NEAR_SHARE) * is_before.float32())

    def evaluate(self, points: Var, directions: Var) -> tuple[Var, Var]:
        """Opacities [S, 1] and colours [S, 3] of samples at contracted points."""
        density, feature = self.density.evaluate(points)
        alpha = alpha_from_density(density, self._lengths(points, directions))
        return alpha, self.color(points, points, directions, feature)

    def update(self) -> None:
        """Evaluate some cells and update the occupancy grid."""
        self.empty_cells.update(self._opacities)

    def _opacities(self, points: np.ndarray, side: float) -> np.ndarray:
        del side
        at = jt.array(points)
        return self._alpha(at, at).numpy()[:, 0]

    def buffers(self) -> dict[str, np.ndarray]:
        """The arrays that a resume needs."""
        return {f"background_{name}": value for name, value in self.empty_cells.buffers().items()} | {
            "background_cells": self.grid.cells,
            "background_sky": self.sky,
        }

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        cells, sky = buffers["background_cells"], buffers["background_sky"]
        if not ((sky >= 0) & (sky <= 1)).all():
            raise ValueError("its background_sky is no colour")
        if cells.max() > OCCUPIED or cells[~self.grid.hull].any() or buffers["background_looks"][0] < 0:
            raise ValueError("its background_cells are not those of a training")
        self.empty_cells.load_buffers({name.removeprefix("background_"): value for name, value in buffers.items()})
        self.grid.set(cells)
        self.sky = sky


def expanded(places: np.ndarray) -> np.ndarray:
    """The inverse of `contracted`, float64; places [P, 3] beyond BACKGROUND_RADIUS are moved to this distance."""
    radius = np.linalg.norm(places, axis=1, keepdims=True)
    away = np.minimum(0.5 / np.maximum(1.0 - radius, 0.5 / BACKGROUND_RADIUS), BACKGROUND_RADIUS)
    return places * (away / np.maximum(radius, 1e-6))


def _seen_share(points: np.ndarray, scene: Scene) -> np.ndarray:
    """The fraction of the images (at most MOST_COUNTED) that see points [P, 3] before the unit sphere: [P]."""
    views = evenly_spaced(scene.n_views, MOST_COUNTED)
    cameras = scene.cameras.pick(views)
    share = np.zeros(len(points))
    for view in range(len(views)):
        camera = cameras.pick(np.array([view]))
        # of a point on its ray before the point nearest to the origin, the distance from the origin still falls
        is_before = ((points - camera.origins) * points).sum(axis=1) < 0
        share += is_before & (frustum_distances(points, camera)[0] > 0)
    return share / len(views)


def _shell(cells: int) -> np.ndarray:
    """The cells that are at least partly outside the sphere: bool [cells, cells, cells]."""
    radius = np.sqrt(squared_radii(cells))
    return (radius < 1 + np.sqrt(3) / cells) & (radius > 0.5 - np.sqrt(3) / cells)


@dataclass(frozen=True)
class MergedBackground:
    """F background samples and their positions among the S samples of the region; see `BackgroundSamples`."""

    alpha: Var  # [F, 1]
    rgb: Var  # [F, 3]
    place: Var  # int32 [S + F], position of each sample (first all S, then all F) in the merged order
    sample: Var  # int32 [S + F], sample at each position
    offsets: Var  # int32 [R + 1], of all S + F samples
    region: int  # S

    def joined(self, alpha: Var, rgb: Var) -> tuple[Var, Var, Var]:
        """Opacity and colour of all samples in merged order."""
        return self._merged(alpha, self.alpha), self._merged(rgb, self.rgb), self.offsets

    def of_region(self, weights: Var) -> Var:
        """Weights of all samples [S + F, 1] -> weights of the region [S, 1]."""
        return weights[self.place[: self.region]]

    def _merged(self, near: Var, far: Var) -> Var:
        """Values of the samples [S, C] and [F, C] in merged order [S + F, C]."""
        return _Permuted(self.place, self.sample)(jt.concat([near, far], dim=0))


class _Permuted(jt.Function):
    """Rows in permuted order; the cotangent is permuted by the inverse."""

    def __init__(self, place: Var, sample: Var) -> None:
        super().__init__()
        self.place, self.sample = place, sample

    def execute(self, values: Var) -> Var:
        return values[self.sample]

    def grad(self, d_values: Var) -> Var:
        return d_values[self.place]
