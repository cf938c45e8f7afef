"""Values that the simulated GPU returns to a step although its kernels do nothing, so that all branches are taken.

Rays have samples, and transmittance is positive. Where a step reads a value from the GPU, a wrapper has the kernels
compiled and launched, and returns a simulated value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from data.parsed_scene import SparsePoints
from data.scenes.scene import Scene

POINTS, RADIUS = 400, 0.5  # of structure from motion, on a sphere about the origin
PER_RAY = 16  # samples
FATBIN = struct.pack("<I", 0xBA55ED50)  # what nvcc's programs for GPUs begin with, compressed or not
MACHINE_CODE = 2  # the kind of an entry that is a program, not text for the driver


def pretend() -> None:
    """Patch the operations for the rest of the process."""
    from models.estimators import background, packed
    from models.estimators.batch import Placed
    from models.estimators.occupancy import OccupancyGrid
    from models.estimators.packed_surface import SurfaceOccupancyEstimator
    from models.machine.backend import jt
    from models.ops.march import PackedSamples

    march, compact, inv_s = OccupancyGrid.march, packed.compact, SurfaceOccupancyEstimator._inv_s
    outside, started = background.outside_samples, Placed.started

    def answered(found: PackedSamples) -> PackedSamples:
        """As many rays as fit the budget, all with the same number of samples."""
        jt.sync(list(vars(found).values()))
        rays = found.offsets.shape[0] - 1
        count = min(rays, found.points.shape[0] // PER_RAY)
        offsets = np.minimum(np.arange(rays + 1), count) * PER_RAY
        return replace(found, offsets=jt.array(offsets.astype(np.int32)), kept=jt.array(np.int32([count])))

    def counted(placed: Placed) -> Placed:
        """Reads what the program reads, and counts as `answered` does."""
        placed = started(placed)
        rays, read = placed.near.offsets.shape[0] - 1, placed.counted.read
        counts = np.int32([rays, rays, *[rays * PER_RAY] * (2 if placed.far is None else 4)])
        placed.counted.read = lambda: (read(), counts)[1]
        return placed

    Placed.started = counted
    background.outside_samples = lambda *arguments: answered(outside(*arguments))
    OccupancyGrid.march = lambda *arguments: answered(march(*arguments))
    packed.compact = lambda *arguments: answered(compact(*arguments))
    SurfaceOccupancyEstimator._inv_s = lambda self: inv_s(self) or 1.0  # nobody divides by the 0 that it reads


def with_points(scene: Scene) -> Scene:
    """The scene with SfM points, which the bundled one has none of."""
    places = np.random.default_rng(0).normal(size=(POINTS, 3))
    places *= RADIUS / np.linalg.norm(places, axis=1, keepdims=True)
    seen, error = np.full(POINTS, scene.n_views), np.full(POINTS, 0.5)
    return replace(scene, points=SparsePoints(places, seen, error, np.zeros((POINTS, 3), np.uint8)))


class OnHost:
    """Operations that are meant for the host: those that are loaded where the program says that it computes there."""

    def __init__(self) -> None:
        """From now on; `is_looking` turned off spares the time of looking."""
        from models.machine.backend import jt

        self.names: set[str] = set()
        self.is_looking = True
        scope = jt.flag_scope

        @contextmanager
        def noted(**flags: int) -> Iterator[None]:
            """`jt.flag_scope`, which records the operations that are loaded for the host."""
            is_looking = self.is_looking and flags == {"use_cuda": 0}
            before = set(operations()) if is_looking else set()
            with scope(**flags):
                yield
            if is_looking:
                self.names |= {library.name for library in set(operations()) - before}

        jt.flag_scope = noted


def operations() -> list[Path]:
    """The libraries of Jittor's operations that this process has loaded."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    files = {Path(line.split(maxsplit=5)[-1]) for line in lines if line.endswith(".so")}
    return sorted(path for path in files if path.parent.name == "jit")


def capabilities(library: Path) -> set[int]:
    """Those that a library holds programs for; none where it runs on the host."""
    return set(_programs(library.read_bytes()))


def _programs(data: bytes) -> Iterator[int]:
    """The capability of each program: fatbin headers of 16 bytes, then entries, each with its sizes in front."""
    start = data.find(FATBIN)
    while start >= 0:
        header, size = struct.unpack_from("<HQ", data, start + 6)
        entry, end = start + header, start + header + size
        while entry < end:
            kind, _, length, payload = struct.unpack_from("<HHIQ", data, entry)
            if kind == MACHINE_CODE:
                yield struct.unpack_from("<I", data, entry + 28)[0]
            entry += length + payload
        start = data.find(FATBIN, start + 4)
