"""A small random example of each operation, to compare its native form with its reference on any device."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np

from data.cameras import affine
from data.rays import Rays
from models import ops
from models.machine.backend import jt
from models.ops.agreement import Agreement
from models.ops.draw import Draw, Photographs
from models.ops.gaussians.splat_project import camera_numbers, project_ellipsoids, project_surfels
from models.ops.gaussians.splat_raster import Look, Raster
from models.ops.gaussians.splat_wander import step_of
from models.ops.grid_sdf import with_network
from models.ops.hits import Hits, Tangent
from models.ops.march import EMPTY, OCCUPIED, SOLID, PackedSamples, with_empty_boxes
from models.ops.network import Weights
from models.ops.outside import BEFORE, Outside
from models.ops.patches import Patches
from models.ops.sizes import FEATURES, ColorSizes, GridSizes, NerfSizes, SdfSizes, encoding_width, grid_sizes
from models.ops.source import Kernel
from models.ops.update import AdamStep, Update
from models.ops.upsample import NetworkDistance
from models.structs import Var

RAYS, POINTS = 20, 150  # more points than two blocks of a kernel, the last one incomplete
SPLATS, WIDTH, HEIGHT = 40, 37, 18  # several tiles, those at the borders incomplete


class Inputs:
    """Inputs drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def sdf(self) -> tuple[Var, Weights, SdfSizes]:
        """A network with a skip connection."""
        encoded = encoding_width(3, 2)
        widths = (encoded, 32 - encoded, 32, 24, 24, 9)
        weights = self.weights(widths)
        return self.normal(POINTS, 3, size=0.5), weights, SdfSizes(3, encoded, 2, 1 << 1, widths, 1.5)

    def grid(self, outputs: int) -> tuple[Var, Var, Weights, GridSizes]:
        """A grid with one dense level, two hashed ones and an inactive one, and a network."""
        sizes = with_network(grid_sizes(4, 4, 40, 10, active=3), [24], outputs)
        table = self.normal(sizes.rows, FEATURES, size=0.1)
        points = as_var(self.rng.uniform(-1.1, 1.1, (POINTS, 3)))
        return points, table, self.weights(sizes.widths), sizes

    def weights(self, widths: Sequence[int]) -> Weights:
        """Linear layers with these inputs and outputs."""
        pairs = list(zip(widths[::2], widths[1::2], strict=True))
        return Weights([(self.normal(out, into, size=into**-0.5), self.normal(out, size=0.1)) for into, out in pairs])

    def offsets(self) -> np.ndarray:
        """Offsets int32 [RAYS + 1] of rays, some of which have no samples, with unused rows at the end of POINTS."""
        counts = self.rng.integers(0, 2 * POINTS // RAYS - 4, RAYS)
        return np.concatenate([[0], np.minimum(np.cumsum(counts), POINTS - 3)]).astype(np.int32)

    def samples(self) -> PackedSamples:
        """Samples of RAYS rays, POINTS rows."""
        offsets = self.offsets()
        used = np.arange(POINTS) < offsets[-1]
        rays = np.where(used, np.searchsorted(offsets, np.arange(POINTS), side="right") - 1, 0)
        depths = np.where(used, np.sort(self.rng.uniform(0.1, 1.4, POINTS)), 0.0)[:, None]
        points, directions = (self.rng.normal(size=(POINTS, 3)) * used[:, None] for _ in range(2))
        whole = (jt.array(values.astype(np.int32)) for values in (offsets, np.array([RAYS]), rays))
        return PackedSamples(*whole, *map(as_var, (depths, points, directions)))

    def rays(self, depths: int) -> tuple[Var, Var, Var]:
        """Origins, directions, and ascending depths [RAYS, depths]."""
        origins, directions = self.normal(RAYS, 3, size=0.1), self.directions(RAYS)
        return origins, directions, as_var(np.sort(self.rng.uniform(0.1, 1.4, (RAYS, depths)), axis=1))

    def splats(self) -> tuple[Var, Var, Var]:
        """Means, quaternions and logarithms of sizes."""
        means, quats = self.normal(SPLATS, 3, size=0.4), self.normal(SPLATS, 4)
        return means, quats, as_var(self.rng.uniform(-3.0, -1.5, (SPLATS, 3)))

    def normal(self, *shape: int, size: float = 1.0) -> Var:
        """Normal numbers of this standard deviation."""
        return as_var(self.rng.normal(0.0, size, shape))

    def uniform(self, low: float, high: float) -> Var:
        """Uniform numbers [POINTS, 1]."""
        return as_var(self.rng.uniform(low, high, (POINTS, 1)))

    def directions(self, count: int) -> Var:
        """Unit vectors [count, 3]."""
        vectors = self.rng.normal(size=(count, 3))
        return as_var(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def as_var(values: Any) -> Var:
    """Numbers as float32."""
    return jt.array(np.asarray(values, np.float32))


def camera() -> Var:
    """A camera that looks at the origin."""
    pose = affine(np.eye(3), (0.0, 0.0, 3.0))
    return as_var(camera_numbers(pose, np.array([[WIDTH, 0, WIDTH / 2], [0, WIDTH, HEIGHT / 2], [0, 0, 1.0]])))


@dataclass(frozen=True)
class Example:
    """Arguments for an operation."""

    arguments: tuple[Any, ...]
    trained: tuple[Var, ...] = ()  # the arguments with compared gradients
    # number of outputs to compare, from the first, since several orders may be correct; None for all
    compared: int | None = None


@cache
def kernels() -> dict[str, Kernel]:
    """Every operation of this package by name."""
    names = [entry.name for entry in pkgutil.walk_packages(ops.__path__, f"{ops.__name__}.")]
    modules = [importlib.import_module(name) for name in names]
    return {
        name: value for module in modules for name, value in sorted(vars(module).items()) if isinstance(value, Kernel)
    }


def outputs(result: Any) -> list[Var]:
    """The Vars of a result, in order."""
    if is_dataclass(result):
        return [leaf for field in fields(result) for leaf in outputs(getattr(result, field.name))]
    if isinstance(result, list | tuple):
        return [leaf for value in result for leaf in outputs(value)]
    return [result]


def example(name: str, seed: int = 0) -> Example:
    """The example of an operation; raises AttributeError if it has none."""
    return getattr(_Makers(seed), name)()


class _Makers(Inputs):
    """A method for each operation, of its name."""

    # networks and grids

    def sdf_distance(self) -> Example:
        return Example(self.sdf())

    def sdf_field(self) -> Example:
        points, weights, sizes = self.sdf()
        return Example((points, weights, sizes), _trained(weights))

    def color(self) -> Example:
        widths = (6 + 3 + 8, 24, 24, 3)
        weights = self.weights(widths)
        fixed, normals, features = (self.normal(POINTS, width) for width in (6, 3, 8))
        sizes = ColorSizes(2, 1, 6, 1, 8, widths)
        return Example((fixed, normals, features, weights, sizes), (normals, features, *_trained(weights)))

    def nerf(self) -> Example:
        encoded, views = encoding_width(4, 2), encoding_width(3, 1)
        widths = (encoded, 24, 24, 24, 24 + encoded, 24, 24, 25, 24 + views, 12, 12, 3)
        weights = self.weights(widths)
        points, directions = self.normal(POINTS, 4, size=0.5), self.directions(POINTS)
        sizes, selected = NerfSizes(3, 4, 2, 1, (1,), widths), jt.array(self.rng.random(POINTS) < 0.5)
        return Example((points, directions, weights, sizes, selected), _trained(weights))

    def grid_encode(self) -> Example:
        points, table, _, sizes = self.grid(4)
        return Example((points, table, sizes), (points, table))

    def grid_values(self) -> Example:
        points, table, weights, sizes = self.grid(4)
        return Example((points, table, weights, sizes), (table, *_trained(weights)))

    def grid_sdf(self) -> Example:
        points, table, weights, sizes = self.grid(9)
        return Example((points, table, weights, sizes), (table, *_trained(weights)))

    def color_inputs(self) -> Example:
        return Example((self.normal(POINTS, 3), self.directions(POINTS), 2))

    def pack(self) -> Example:
        normed = [self.normal(9, 5), self.normal(9, 1), self.normal(9)]
        plain = [self.normal(3, 300), self.normal(3)]
        return Example(([tuple(normed), tuple(plain)],), (*normed, *plain))

    # samples along rays

    def intervals(self) -> Example:
        origins, directions, depths = self.rays(12)
        return Example((origins, directions, depths, 0.1))

    def upsample(self) -> Example:
        origins, directions, depths = self.rays(16)
        distances = depths.numpy() - self.rng.uniform(0.4, 0.9, (RAYS, 1)).astype(np.float32)
        return Example((origins, directions, depths, jt.array(-distances), 64.0, 8), compared=2)

    def place(self) -> Example:
        """Two rounds, without given distances at the first depths."""
        rays, (_, weights, sizes) = self.rays(16), self.sdf()
        # A smaller sharpness than in training: 64 would amplify the rounding of a distance to 1e-3 of a depth.
        return Example((*rays, None, NetworkDistance(weights, sizes), [6, 0, 5], 0.25))

    def march(self) -> Example:
        directions = self.directions(RAYS)
        cells = self.rng.choice(np.array([EMPTY, OCCUPIED, SOLID], np.uint8), (16, 16, 16), p=[0.6, 0.35, 0.05])
        cells[:8] = EMPTY
        near, far, jitter = (np.full((RAYS, 1), value, np.float32) for value in (1.0, 3.0, 0.5))
        where = [directions * -2.0, directions, *map(jt.array, (near, far, jitter, with_empty_boxes(cells)))]
        return Example((*where, 0.05, RAYS * 40))

    def compact(self) -> Example:
        return Example((self.samples(), jt.array(self.rng.random(POINTS) < 0.6), POINTS // 3))

    def fill(self) -> Example:
        others = self.normal(5, 3)
        return Example((self.samples(), others, POINTS + 10))

    def merged_order(self) -> Example:
        return Example((self.samples(), self.samples()))

    def draw_pixels(self) -> Example:
        """Two photographs of 8x6 and 5x7 pixels, the second one with a window."""
        windows, pixels = np.array([[0, 8, 0, 0, 8, 6], [48, 5, 1, 2, 3, 4]], np.int32), 48 + 35
        shares, cameras = np.array([0.8, 1.0]), self.rng.normal(size=(2, 12))
        bytes_of = [jt.array(self.rng.integers(0, 256, shape).astype(np.uint8)) for shape in ((pixels, 3), pixels)]
        doubles = [jt.array(values, dtype="float64") for values in (shares, cameras)]
        photographs = Photographs(jt.array(windows), *doubles, *bytes_of)
        return Example((photographs, Draw(RAYS, 3, 5, np.float64(0.3), 1)))

    def outside_samples(self) -> Example:
        """Rays around the sphere with more samples than fit, all cells occupied."""
        origins, directions = self.rng.normal(size=(2, RAYS, 3))
        origins *= 3.0 / np.linalg.norm(origins, axis=1, keepdims=True)
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        rays = Rays(*map(as_var, (origins, directions, *np.zeros((2, RAYS, 1)))))
        jitter, transmits = jt.array(self.rng.random((RAYS, 1), dtype=np.float32)), jt.array(np.ones(RAYS, bool))
        states, sizes = np.full((8, 8, 8), BEFORE, np.uint8), Outside(8, 64, np.float64(0.2), np.float64(0.1))
        return Example((rays, jitter, transmits, jt.array(states), sizes))

    # rendering and losses

    def alpha_from_sdf(self) -> Example:
        sdf, cos, lengths = self.normal(POINTS, 1, size=0.05), self.normal(POINTS, 1), self.uniform(0.01, 0.1)
        inv_s = as_var([40.0])
        return Example((sdf, cos, lengths, inv_s, 0.7), (sdf, cos, inv_s))

    def weights_from_alpha(self) -> Example:
        alpha = self.uniform(0.0, 0.5)
        return Example((alpha, jt.array(self.offsets())), (alpha,))

    def composite(self) -> Example:
        weights, values = self.normal(POINTS, 1), self.normal(POINTS, 5)
        return Example((weights, values, jt.array(self.offsets())), (weights, values))

    def surface_hits(self) -> Example:
        """Rays that hit a surface, are transparent, or leave it behind."""
        sdf, gradient = self.normal(POINTS, 1, size=0.05), self.normal(POINTS, 3)
        directions, weights, places = self.directions(POINTS), self.uniform(0.0, 0.3), self.normal(POINTS, 3)
        given = (weights, places, directions, jt.array(self.offsets()), Hits(POINTS, 1, 0.5, 0.1, 0.1))
        return Example((sdf, gradient, *given), (sdf, gradient))

    def tangent_points(self) -> Example:
        at = jt.array(np.arange(RAYS, dtype=np.int32) - 1)  # one ray without a hit
        return Example((at, self.normal(RAYS, 3), self.normal(POINTS, 3), Tangent(0.3, -0.5, 0.8, 0.01)))

    def second_differences(self) -> Example:
        at, sdf, around = (
            jt.array(np.arange(RAYS, dtype=np.int32) - 1),
            self.normal(POINTS, 1),
            self.normal(2 * RAYS, 1),
        )
        return Example((at, sdf, around, 0.5), (sdf, around))

    def loss_sum(self) -> Example:
        values = self.normal(POINTS, 3)
        return Example(("UNIT_LENGTH", values, None, self.uniform(0.0, 1.0)), (values,))

    def patch_costs(self) -> Example:
        """Patches of the plane z = 0, seen by adjacent cameras."""
        intrinsics, rows = np.array([[30.0, 0, 20], [0, 30, 20], [0, 0, 1]]), []
        for shift in (0.0, 0.2):
            place = np.array([shift, 0.0, -2.0])
            projection = intrinsics @ np.column_stack([np.eye(3), -place])
            rows.append(np.concatenate([projection.ravel(), np.linalg.inv(intrinsics).ravel(), place, [40, 40]]))
        points, normals = as_var(self.rng.uniform(-0.5, 0.5, (RAYS, 3))), self.normal(RAYS, 3, size=0.2)
        normals = as_var([0, 0, -1] + normals.numpy())
        x, y = np.meshgrid(np.arange(40), np.arange(40))
        images = [127 + 100 * np.sin(0.5 * x + shift) * np.cos(0.4 * y) for shift in (0.0, 1.5)]
        views = np.tile(np.array([0, 1], np.int32), (RAYS, 1))
        views[::4, 0] = -1
        given = (points, normals, jt.array(views), as_var(rows), jt.array(np.stack(images).astype(np.uint8)))
        return Example((*given, Patches(40, 40, 1, 2, 1, 1.9)), (points, normals))

    def agreement(self) -> Example:
        """Vertices near the plane z = 0 below three cameras; some patches are small, some leave a photograph."""
        rows = [[30.0, 0, 20, 40 - 30 * shift, 0, 30, 20, 40, 0, 0, 1, 2] for shift in (0.0, 0.2, -0.3)]
        points, steps = as_var(self.rng.uniform(-0.5, 0.5, (RAYS, 3)) * [1, 1, 0.1]), as_var(np.full((RAYS, 1), 0.02))
        normals = as_var(np.tile([0, 0, -1], (RAYS, 1)))
        patches = self.rng.integers(0, RAYS, (RAYS, 8)).astype(np.int32)
        patches[::3, 5:] = -1
        views = np.tile(np.array([0, 2, -1, 1], np.int32), (RAYS, 1))
        sizes, pixels = [[40, 40, 1600 * view] for view in range(3)], self.rng.integers(0, 256, 3 * 1600)
        whole = [jt.array(value) for value in (patches, views)]
        photographs = (as_var(rows), jt.array(np.array(sizes, np.int32)), jt.array(pixels.astype(np.uint8)))
        return Example((points, normals, steps, *whole, *photographs, Agreement(5, 4, 8)))

    def inv_s_of(self) -> Example:
        variance = self.normal(1, size=0.2)
        return Example((variance,), (variance,))

    def weighted_means(self) -> Example:
        totals, counts = [[self.normal(1).sqr() + 1.0 for _ in range(3)] for _ in range(2)]
        arguments = (totals, [counts[0], 7.0, counts[2]], [0.0, 0.1, 0.2], [1.0, 0.5, 2.0])
        return Example(arguments, (*totals,))

    def picture_loss(self) -> Example:
        picture, photograph = (as_var(self.rng.random((HEIGHT, WIDTH, 3))) for _ in range(2))
        return Example((picture, photograph, 0.2), (picture,))

    # steps

    def adam(self) -> Example:
        shapes = ((7, 5), (300, 2), (1,))
        parameters, gradients, firsts = ([self.normal(*shape) for shape in shapes] for _ in range(3))
        seconds = [self.normal(*shape).sqr() for shape in shapes]
        before = Update(parameters, firsts, seconds, jt.array(np.array([True])))
        return Example((before, gradients, [1e-2, 2e-2, 3e-2], AdamStep.after(3)))

    def readings(self) -> Example:
        loss, *values = (self.normal(*shape) for shape in ((1,), (30, 20), (5,), (30, 20), (5,)))
        return Example((loss, values[:2], values[2:]))

    # Gaussians

    def project_ellipsoids(self) -> Example:
        return self._projected(3)

    def project_surfels(self) -> Example:
        return self._projected(4)

    def composite_ellipsoids(self) -> Example:
        return self._composited(project_ellipsoids)

    def composite_surfels(self) -> Example:
        return self._composited(project_surfels)

    def shade_splats(self) -> Example:
        means, dc, rest = (self.normal(SPLATS, *shape) for shape in ((3,), (3,), (15, 3)))
        return Example((means, dc, rest, camera(), 3), (means, dc, rest))

    def wander_splats(self) -> Example:
        """Most of them transparent enough to move, by about their distance."""
        opacities = as_var(self.rng.uniform(-9.0, -1.0, (SPLATS, 1)))
        return Example((*self.splats(), opacities, step_of(20.0, False, 0)))

    def _projected(self, compared: int) -> Example:
        """Without the radii, which are rounded up."""
        splats = self.splats()
        return Example((*splats, camera(), WIDTH, HEIGHT), splats, compared)

    def _composited(self, project: Kernel) -> Example:
        seen = project(*self.splats(), camera(), WIDTH, HEIGHT)
        parts = {name: jt.array(value.numpy()) for name, value in vars(seen).items()}  # independent of the projection
        colors, opacities = as_var(self.rng.random((SPLATS, 3))), as_var(self.rng.uniform(0.1, 0.9, (SPLATS, 1)))
        look = Look(colors, opacities, as_var(self.rng.random(3)))
        trained = [value for name, value in parts.items() if name != "radii"]
        arguments = (type(seen)(**parts), look, Raster(WIDTH, HEIGHT))
        return Example(arguments, (*trained, colors, opacities))


EXAMPLES = tuple(name for name in vars(_Makers) if not name.startswith("_"))  # the operations that have one


def _trained(weights: Weights) -> tuple[Var, ...]:
    return tuple(part for layer in weights.layers for part in layer)
