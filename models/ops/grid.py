"""A multiresolution hash grid over the cube [-1, 1]^3 (Instant-NGP, arXiv 2201.05989, section 3).

The features of a point are interpolated between the eight corners of its cell in each level: linearly, or smoothly with
the weight u^2 (3 - 2 u) in place of u (appendix A). Corners have separate rows of the table, or share rows by a hash.
Points outside the cube are clamped to it. Differentiable once, with respect to points and table.
"""

from __future__ import annotations

from models.machine.backend import jt
from models.ops.network import network_source, shapes32
from models.ops.sizes import FEATURES, GridSizes
from models.ops.source import Kernel
from models.structs import Var

# The hash factors of y and z (eq. 4; that of x is 1) as signed 32-bit numbers: only low bits count.
HASH_FACTORS = (2654435761 - 2**32, 805459861)
CORNERS = 8
SOURCE = network_source("grid_encode.h", GridSizes, FEATURES=FEATURES)


def _reference(points: Var, table: Var, sizes: GridSizes) -> Var:
    """[P, 3], [rows, FEATURES] -> features [P, L FEATURES], zero in inactive levels."""
    features = [level_features(points, table, sizes, level) for level in range(sizes.active)]
    features += [jt.zeros((points.shape[0], FEATURES))] * (sizes.levels - sizes.active)
    return jt.concat(features, dim=1)


def level_features(points: Var, table: Var, sizes: GridSizes, level: int) -> Var:
    """Features of one level, [P, FEATURES]; differentiable twice."""
    rows, low, high, _ = _cells(points, sizes, level)
    total = 0.0
    for corner in range(CORNERS):
        x, y, z = ((high if corner >> axis & 1 else low)[:, axis : axis + 1] for axis in range(3))
        total = total + x * y * z * table[rows[corner]]
    return total


def level_slopes(points: Var, table: Var, sizes: GridSizes, level: int) -> list[Var]:
    """Derivatives of one level's features along x, y and z, [P, FEATURES] each; differentiable in the table."""
    rows, low, high, scale = _cells(points, sizes, level)
    slopes: list[Var] = []
    for along in range(3):
        total = 0.0
        for corner in range(CORNERS):
            sign = 1.0 if corner >> along & 1 else -1.0
            first, second = (
                (high if corner >> axis & 1 else low)[:, axis : axis + 1] for axis in range(3) if axis != along
            )
            total = total + first * second * sign * table[rows[corner]]
        slopes.append(total * scale[:, along : along + 1])
    return slopes


def _cells(points: Var, sizes: GridSizes, level: int) -> tuple[list[Var], Var, Var, Var]:
    """The cells of points in a level.

    Returns:
        The table row of each of the eight corners, int64 [P]; the weights of the lower and the upper end along each
            axis [P, 3]; the derivatives of the latter, 0 for coordinates outside the cube [P, 3].
    """
    resolution = sizes.resolutions[level]
    inside = jt.ternary(points > 1.0, jt.ones_like(points), points)
    inside = jt.ternary(inside < -1.0, -jt.ones_like(points), inside)
    place = (inside + 1.0) * (0.5 * resolution)
    lowest = place.detach().floor().int32().clamp(0, resolution - 1).stop_grad()
    high = place - lowest.float32()
    scale = (inside == points).float32() * (0.5 * resolution)
    if level < sizes.smooth:
        high, scale = high * high * (3.0 - 2.0 * high), 6.0 * high * (1.0 - high) * scale
    first = [lowest[:, axis].int64() for axis in range(3)]
    rows = []
    for corner in range(CORNERS):
        x, y, z = (first[axis] + (corner >> axis & 1) for axis in range(3))
        if sizes.is_dense(level):
            row = x + (y + z * (resolution + 1)) * (resolution + 1)
        else:
            row = (x ^ (y * HASH_FACTORS[0]) ^ (z * HASH_FACTORS[1])) & (sizes.entries[level] - 1)
        rows.append((row + sizes.start(level)).stop_grad())
    return rows, 1.0 - high, high, scale.stop_grad()


def _native(points: Var, table: Var, sizes: GridSizes) -> Var:
    """One forward operation, and one backward operation per requested input."""
    return _Encode(points, table, sizes)(points, table)


class _Encode(jt.Function):
    """Stores only its inputs."""

    def __init__(self, points: Var, table: Var, sizes: GridSizes) -> None:
        super().__init__()
        self.points, self.table, self.sizes = points, table, sizes

    def execute(self, points: Var, table: Var) -> Var:
        shapes = shapes32((points.shape[0], self.sizes.levels * FEATURES))
        return SOURCE.call("grid_encode", self.sizes, shapes, [points, table])[0]

    def grad(self, d_features: Var) -> tuple[Var, Var]:
        """Cotangents of points and table; Jittor is lazy, so one that is not used is not computed."""
        inputs = [self.points, self.table, d_features]
        to_points = SOURCE.call("grid_encode_points", self.sizes, shapes32(self.points.shape), inputs)[0]
        inputs = [self.points, d_features]
        return to_points, SOURCE.call("grid_encode_table", self.sizes, shapes32(self.table.shape), inputs)[0]


grid_encode = Kernel(_reference, cpu=_native, cuda=_native)
