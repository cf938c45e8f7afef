"""What lies beyond the unit sphere: a radiance field on a grid over contracted space (mip-NeRF 360, arXiv 2111.12077).

A point at distance r > 1 of the origin is contracted to distance 2 - 1 / r; half of that is its place in the grid's
cube. Samples along a ray are apart by the same share of their distance from the origin, so that what is far has as many
as it has pixels; a density is per such a share, and an opacity the same from wherever it is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data.io.images import to_float
from data.rays import Rays
from data.roi.frustum import Cameras, room
from data.scenes.scene import Scene
from models.fields.color import RenderingNetwork
from models.fields.density_grid import DensityGrid
from models.kinds.fast.conf import BackgroundConfig
from models.kinds.fast.light import is_lit
from models.kinds.fast.looks import Looks
from models.machine.backend import jt
from models.ops.march import OCCUPIED
from models.rendering.occupancy import Occupancy, Walk, packed_walk
from models.structs import Var

FARTHEST = 64.0  # working-frame units from the origin: what is farther is contracted to 1/128 of the cube's side
# Share of their length for which samples between camera and region absorb light: the field begins as a fog that hides
# the region from all cameras, and what each camera then clears is a picture of its own photograph before its lens. DTU
# scan 24, held-out PSNR after 1,000 steps: 14.4 dB with 1, 18.6 dB with 0.02, 18.0 dB without samples there.
NEAR_SHARE = 0.02
# Share of the photographs in whose view a place has to be for samples on the way to the region: what few photographs
# see, right before their lenses, nothing tells from what they show behind it. The same scene after 3,000 steps: 21.6 dB
# with 0, 22.8 dB with 0.2, 22.5 dB without samples there.
LEAST_SEEN = 0.2
MOST_COUNTED = 100  # photographs that this is told by
THIN = 0.05  # density of a fog before a plain backdrop: below the threshold, lest cells stay that hold nothing
PLAIN_DIFFERENCE, PLAIN_SHARE = 0.05, 0.9  # of the pixels along the pictures' borders, to their median colour
EXACTLY = 1.5 / 255  # difference of colours up to which they are the same
NEAR_SHARE_BEFORE = np.ones(1, np.float32)  # that of checkpoints which do not name it


@dataclass(frozen=True)
class Candidates:
    """Places along R rays beyond the unit sphere, K of each; some of them do not exist."""

    depths: np.ndarray  # [R, K], ascending along each ray
    exist: np.ndarray  # bool [R, K]
    is_before: np.ndarray  # bool [R, K], whether they lie between camera and sphere


@dataclass(frozen=True)
class Asked:
    """N samples along rays beyond the sphere, in contracted places of cells that may hold something."""

    ray: np.ndarray  # [N], ascending, and along each ray from the camera outwards
    is_before: np.ndarray  # bool [N], between camera and sphere
    depths: np.ndarray  # [N]
    points: np.ndarray  # [N, 3]
    alpha: Var | None  # [N, 1], under way; None of no samples

    def lit(self, rays: Rays, passes: np.ndarray, budget: int) -> Walk:
        """Those that light reaches, of the first of these rays, as many as fit the budget; waits for the opacities.

        passes: bool [R], whether light comes through the region.
        """
        kept = np.flatnonzero(self.ray < len(rays))
        kept = kept[self.is_before[kept] | passes[self.ray[kept]]]
        if len(kept):
            offsets = np.searchsorted(self.ray[kept], np.arange(len(rays) + 1)).astype(np.int32)
            kept = kept[is_lit(self.alpha.numpy()[kept], offsets)]
        return packed_walk(self.ray[kept], self.depths[kept], self.points[kept], rays, budget)


class Background:
    """Density and colour beyond the sphere, and where it is empty."""

    def __init__(self, density: DensityGrid, color: RenderingNetwork, conf: BackgroundConfig) -> None:
        self.density, self.color, self.conf = density, color, conf
        self.occupancy = Occupancy(_shell(conf.cells))
        self.looks = Looks(self.occupancy, conf.threshold)
        self._is_shared = np.ones(self.occupancy.hull.shape, bool)  # cells that enough photographs see
        self.near_share = NEAR_SHARE  # of checkpoints before it there was one: 1
        self.is_plain = False  # whether the scene's photographs are taken before a backdrop of one colour
        self.sky = np.zeros(3, np.float32)  # what the light shows that nothing stops

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """Density, colour."""
        return {"background_density": self.density, "background_color": self.color}

    def fit(self, scene: Scene) -> None:
        """Count which cells photographs see, and begin with what they show along their borders.

        Photographs before a plain backdrop begin with it behind a thin fog, others with a thick one before black.

        A thick fog hides what is in the region for long; seen through a thin one, a backdrop that is not plain is
        mistaken for the object.
        """
        self._is_shared[self.occupancy.hull] = _seen_share(expanded(self.occupancy.centres()), scene) >= LEAST_SEEN
        border = np.concatenate([to_float(edge) for image in scene.images for edge in _edges(image)])
        middle = np.median(border, axis=0)
        if (np.abs(border - middle).max(axis=1) < PLAIN_DIFFERENCE).mean() < PLAIN_SHARE:
            return
        self.is_plain, self.sky = True, middle.astype(np.float32)
        bias = self.density.layers()[-1].bias
        bias.update(jt.array(np.concatenate([[np.log(THIN)], bias.numpy()[1:]]).astype(np.float32)))
        bias.start_grad()

    def shows_alone(self, rgb: np.ndarray) -> np.ndarray:
        """Which colours [R, 3] are exactly those of a plain backdrop: bool [R]. Of photographs hardly any, of pictures
        from a computer all beside the object, where else things of that colour could hang unseen."""
        return self.is_plain & (np.abs(rgb - self.sky).max(axis=1) < EXACTLY)

    def ask(self, rays: Rays, jitter: np.ndarray, passes: np.ndarray | None = None) -> Asked:
        """How opaque it is along rays, wherever something may be; does not wait for the answer.

        passes: bool [R], whether light comes through the region, where that is known.
        """
        found = candidates(rays, jitter, self.conf.section, self.occupancy.near_plane)
        exist = found.exist if passes is None else found.exist & (found.is_before | passes[:, None])
        ray, place = np.nonzero(exist)
        depths = found.depths[ray, place]
        points = contracted(rays.origins[ray] + rays.directions[ray] * depths[:, None])
        cell = self.occupancy.place(points)
        may_be = self._is_shared[cell] | ~found.is_before[ray, place]
        kept = np.flatnonzero((self.occupancy.cells[cell] == OCCUPIED) & may_be)
        ray, points = ray[kept], points[kept]
        alpha = self._alpha(points, rays.directions[ray]) if len(points) else None
        return Asked(ray, found.is_before[ray, place[kept]], depths[kept], points, alpha)

    def _alpha(self, points: np.ndarray, directions: np.ndarray) -> Var:
        """Opacities [P, 1] of samples at points [P, 3] along directions [P, 3], under way."""
        with jt.no_grad():
            place = jt.array(points)
            alpha = self.density.at_weights().evaluate(place).alpha(self._lengths(place, jt.array(directions)))
            jt.sync([alpha])
        return alpha

    def _lengths(self, points: Var, directions: Var) -> Var:
        """For how long samples absorb light [P, 1]: a section, or NEAR_SHARE of it on the way to the region.

        A sample lies between camera and region where its ray still comes nearer to the origin.
        """
        is_before = (points * directions).sum(dim=1, keepdims=True) < 0
        return self.conf.section * (1.0 - (1.0 - self.near_share) * is_before.float32())

    def look(self, points: Var, directions: Var) -> tuple[Var, Var]:
        """Opacities [S, 1] and colours [S, 3] of samples in contracted places."""
        found = self.density.at_weights().evaluate(points)
        alpha = found.alpha(self._lengths(points, directions))
        return alpha, self.color(points, points, directions, found.feature)

    def renew(self) -> None:
        """Look at some of the cells again."""
        self.looks.renew(self._opacities)

    def _opacities(self, points: np.ndarray, side: float) -> np.ndarray:
        """Of cells of this side about points [P, 3]: [P]."""
        del side
        return self._alpha(points, points).numpy()[:, 0]

    def buffers(self) -> dict[str, np.ndarray]:
        """What a resume needs."""
        return {f"background_{name}": value for name, value in self.looks.buffers().items()} | {
            "background_cells": self.occupancy.cells,
            "background_sky": self.sky,
            "background_near_share": np.array([self.near_share], np.float32),
        }

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Take them back; raises ValueError for others."""
        cells, sky = buffers["background_cells"], buffers["background_sky"]
        near_share = float(buffers["background_near_share"][0])
        if not 0 < near_share <= 1:
            raise ValueError("its share of the light before the region is none")
        if not ((sky >= 0) & (sky <= 1)).all():
            raise ValueError("its colour behind everything is not one")
        if cells.max() > OCCUPIED or cells[~self.occupancy.hull].any() or buffers["background_looks"][0] < 0:
            raise ValueError("its cells of the background are not such as a training makes")
        self.looks.load_buffers({name.removeprefix("background_"): value for name, value in buffers.items()})
        self.occupancy.set(cells)
        self.sky, self.near_share = sky, near_share


def _edges(image: np.ndarray) -> tuple[np.ndarray, ...]:
    """The four borders of a picture [H, W, 3], each [N, 3]."""
    return image[0], image[-1], image[:, 0], image[:, -1]


def candidates(rays: Rays, jitter: np.ndarray, section: float, near_plane: float) -> Candidates:
    """Depths along rays beyond the unit sphere, from their near plane to FARTHEST.

    With m the depth nearest the origin and b its distance from it, the depth m + b sinh(u) is b cosh(u) from the
    origin, so that equal steps in u are equal shares of the distance. jitter [R, 1] in [0, 1) shifts them, in steps.
    """
    origins, directions = rays.origins.astype(np.float64), rays.directions.astype(np.float64)
    middle = -np.einsum("ri,ri->r", origins, directions)
    apart = np.sqrt(np.maximum(np.einsum("ri,ri->r", origins, origins) - middle**2, 1e-6))
    half = np.sqrt(np.maximum(1.0 - apart**2, 0.0))

    def steps(depth: np.ndarray) -> np.ndarray:
        return np.arcsinh((depth - middle) / apart) / section

    start = steps(np.full(len(rays), near_plane))
    enters, leaves, ends = steps(middle - half), steps(middle + half), steps(middle + FARTHEST)
    before = np.maximum(0, np.floor(enters - start)).astype(np.int64)
    from_there = np.maximum(leaves, start)
    behind = np.maximum(0, np.floor(ends - from_there)).astype(np.int64)
    number = np.arange(int((before + behind).max(initial=0)))[None]
    is_before = number < before[:, None]
    at = np.where(is_before, start[:, None] + number, from_there[:, None] + number - before[:, None]) + jitter
    depths = middle[:, None] + apart[:, None] * np.sinh(at * section)
    return Candidates(depths.astype(np.float32), number < (before + behind)[:, None], is_before)


def contracted(points: np.ndarray) -> np.ndarray:
    """Places [P, 3] in the grid's cube of points beyond the unit sphere [P, 3]; float32."""
    radius = np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0)
    return (points * ((1.0 - 0.5 / radius) / radius)).astype(np.float32)


def expanded(places: np.ndarray) -> np.ndarray:
    """The inverse of `contracted`, float64; places [P, 3] farther than FARTHEST are taken for as far."""
    radius = np.linalg.norm(places, axis=1, keepdims=True)
    away = np.minimum(0.5 / np.maximum(1.0 - radius, 0.5 / FARTHEST), FARTHEST)
    return places * (away / np.maximum(radius, 1e-6))


def _seen_share(points: np.ndarray, scene: Scene) -> np.ndarray:
    """Share of the scene's photographs, of MOST_COUNTED at the most, in whose view points [P, 3] lie: [P]."""
    views = np.unique(np.linspace(0, scene.n_views - 1, MOST_COUNTED).round().astype(int))
    sizes = np.array([scene.size(view) for view in views], np.float64)
    cameras = Cameras(scene.intrinsics[views], scene.c2w[views], sizes)
    return np.mean([room(points, cameras.pick(np.array([view])))[0] > 0 for view in range(len(views))], axis=0)


def _shell(cells: int) -> np.ndarray:
    """The cells some of which may be beyond the sphere: bool [cells, cells, cells]."""
    ticks = ((np.arange(cells) + 0.5) * 2.0 / cells - 1) ** 2
    radius = np.sqrt(ticks[:, None, None] + ticks[None, :, None] + ticks)
    return (radius < 1 + np.sqrt(3) / cells) & (radius > 0.5 - np.sqrt(3) / cells)
