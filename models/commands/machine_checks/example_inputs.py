"""Random inputs for the examples of operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from models.machine.backend import jt
from models.ops.grid_sdf import with_network
from models.ops.march import PackedSamples
from models.ops.network import Weights
from models.ops.sizes import FEATURES, GridSizes, SdfSizes, encoding_width, grid_sizes
from models.ops.splat_project import camera_numbers
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
        found = self.rng.normal(size=(count, 3))
        return as_var(found / np.linalg.norm(found, axis=1, keepdims=True))


def as_var(values: Any) -> Var:
    """Numbers as float32."""
    return jt.array(np.asarray(values, np.float32))


def camera() -> Var:
    """A camera that looks at the origin."""
    pose = np.eye(4)
    pose[2, 3] = 3.0
    return as_var(camera_numbers(pose, np.array([[WIDTH, 0, WIDTH / 2], [0, WIDTH, HEIGHT / 2], [0, 0, 1.0]])))
