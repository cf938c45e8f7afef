"""Extract a surface with evaluations only near it; gives the triangles of the dense grid.

A coarse lattice is evaluated everywhere. Cells that the field's rule cannot exclude are refined block by
block; each block is marched and stored (block_store.py). Then common faces of blocks are compared: where the surface
leaves a block and its neighbour has no surface there, both are evaluated densely, until all are consistent. So each
component that is found is complete.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import trimesh

from models.mesh.block_store import BlockStore, Key, Patch
from models.mesh.extraction import (
    BLOCK,
    COARSEST_BOUNDED,
    COARSEST_UNBOUNDED,
    DIRECTIONS,
    SLOPE_MARGIN,
    EmptySurfaceError,
    Grid,
    Progress,
    Refinement,
    Samples,
    face_signs,
    marching_cubes,
    mixed_corners,
    no_crossing,
    refine,
    steepest,
)

if TYPE_CHECKING:
    from models.methods.protocol import LevelSet

SLOPE_SAMPLES = 1024  # additional points at which the gradient norm of a signed distance is measured
BLOCK_NEIGHBOURS = tuple(itertools.product((-1, 0, 1), repeat=3))  # a block and its neighbours


@dataclass(frozen=True)
class Sparse:
    """A mesh and its statistics."""

    mesh: trimesh.Trimesh
    queries: int  # evaluations of the field
    share: float  # fraction of those of the dense grid
    blocks: int  # blocks that were refined
    resumed: int  # blocks that were restored from an earlier run
    rule: str  # the rule as a text
    store: BlockStore


def extract(
    field: LevelSet,
    low: np.ndarray,
    high: np.ndarray,
    resolution: int,
    threshold: float,
    chunk: int,
    progress: Progress = iter,
    folder: Path | None = None,
) -> Sparse:
    """The surface of `field` between the corners `low` and `high` [3], on a grid of `resolution` points per axis.

    As published, marching cubes runs on minus the field at `threshold`. At most `chunk` points are evaluated at a time;
    finished blocks are kept in `folder` until `Sparse.store.clear`. Raises EmptySurfaceError if there is no surface,
    UserError for a resolution below 2 or a full disk.
    """
    grid = Grid.of(low, high, resolution, COARSEST_BOUNDED if field.bounded else COARSEST_UNBOUNDED)
    samples = Samples(field.outward, field.quantity, grid, threshold, chunk)
    coarse = samples.coarse(grid, progress)
    rule = _rule(field, grid, samples, coarse, threshold)
    blocks = _Blocks(grid, samples, coarse, rule, BlockStore(folder, coarse, grid))
    cells = grid.cells
    active = blocks.active(coarse, rule).reshape((grid.blocks, cells) * 3).any(axis=(1, 3, 5))
    queue: list[Key] = [(x, y, z) for x, y, z in np.argwhere(active).tolist()]
    blocks.store.require_space(len(queue))
    while queue:
        for key in progress(queue):
            blocks.finish(key)
        queue = sorted(blocks.inconsistent() | blocks.too_steep())
    patches = [(patch.vertices, patch.faces) for _, patch in sorted(blocks.patches.items()) if len(patch.faces)]
    if not patches:
        raise EmptySurfaceError(no_crossing(samples.lowest, samples.highest, threshold, field.quantity))
    vertices, faces = weld(patches)
    mesh = trimesh.Trimesh(grid.places(vertices), faces, process=False)
    share = samples.queries / resolution**3
    return Sparse(mesh, samples.queries, share, len(blocks.patches), blocks.resumed, rule.text(), blocks.store)


def _rule(field: LevelSet, grid: Grid, samples: Samples, coarse: np.ndarray, threshold: float) -> Refinement:
    """The rule for this field; measures the gradient norm of a signed distance."""
    if not field.bounded:
        return Refinement(None, -threshold, field.evened)
    places = np.random.default_rng(0).integers(1, max(2, grid.resolution - 1), (SLOPE_SAMPLES, 1, 3))
    steps = np.array([(0, 0, 0), *DIRECTIONS])
    values = samples((places + steps).reshape(-1, 3)).reshape(SLOPE_SAMPLES, -1)
    slopes = np.abs(values[:, 1:] - values[:, :1]) / np.linalg.norm(steps[1:] * grid.spacing, axis=1)
    wide = steepest(coarse, np.ones(coarse.shape, bool), grid.stride * grid.spacing)
    return Refinement(SLOPE_MARGIN * max(float(slopes.max()), wide))


class _Blocks:
    """The blocks of a grid and their patches."""

    def __init__(self, grid: Grid, samples: Samples, coarse: np.ndarray, rule: Refinement, store: BlockStore) -> None:
        self._grid, self._samples, self._coarse, self._rule, self.store = grid, samples, coarse, rule, store
        self.patches: dict[Key, Patch] = {}
        self.resumed = 0
        self._forced: dict[Key, np.ndarray] = {}

    def active(self, coarse: np.ndarray, rule: Refinement) -> np.ndarray:
        """The coarse cells that the surface may cross."""
        return rule.may_cross(coarse, self._grid.stride * self._grid.spacing, coarse=True) | mixed_corners(coarse)

    def finish(self, key: Key) -> None:
        """Compute or restore the patch of a block."""
        patch = None if key in self.patches else self.store.load(key)
        if patch is None:
            patch = self._evaluated(key)
            self.store.save(key, patch)
        else:
            self.resumed += 1
            self._forced[key] = patch.forced
        self.patches[key] = patch

    def _evaluated(self, key: Key) -> Patch:
        """Compute the patch of a block, with the largest gradient norm found in it and its neighbours."""
        grid, origin = self._grid, np.array(key) * BLOCK
        coarse = self._coarse[grid.coarse(key)]
        forced = self._forced.setdefault(key, np.zeros((grid.cells,) * 3, bool))
        slope = self._slope_near(key)
        while True:
            rule = self._rule.widened(slope)
            active = self._active_in(key, rule)
            values, steepness = refine(
                coarse, active, forced, grid.stride, grid.spacing, rule, lambda places: self._samples(places + origin)
            )
            if rule.widened(steepness) is rule:
                break
            slope = steepness
        vertices, faces = marching_cubes(values[grid.within(key)], origin)
        return Patch(vertices, faces, face_signs(values), forced, steepness, slope)

    def _active_in(self, key: Key, rule: Refinement) -> np.ndarray:
        """The coarse cells of a block that the surface may cross, also considering those around them."""
        around = tuple(slice(max(part.start - 1, 0), part.stop + 1) for part in self._grid.coarse(key))
        inner = tuple(
            slice(part.start - wide.start, part.start - wide.start + self._grid.cells)
            for part, wide in zip(self._grid.coarse(key), around, strict=True)
        )
        return self.active(self._coarse[around], rule)[inner]

    def _slope_near(self, key: Key) -> float:
        """The largest gradient norm found so far in a block and its neighbours."""
        near = (self.patches.get(tuple(np.add(key, step).tolist())) for step in BLOCK_NEIGHBOURS)
        return max((patch.steepest for patch in near if patch is not None), default=0.0)

    def too_steep(self) -> set[Key]:
        """The blocks in which the rule was too narrow, according to their neighbours."""
        blocks = set()
        steep = [key for key, patch in self.patches.items() if self._rule.widened(patch.steepest) is not self._rule]
        for key in {tuple(np.add(key, step).tolist()) for key in steep for step in BLOCK_NEIGHBOURS}:
            if min(key) < 0 or max(key) >= self._grid.blocks:
                continue
            slope = self._slope_near(key)
            if key in self.patches:
                allowed = self._rule.widened(self.patches[key].allowed)
                if allowed.widened(slope) is not allowed:
                    blocks.add(key)
            elif self._active_in(key, self._rule.widened(slope)).any():
                blocks.add(key)
        return blocks

    def inconsistent(self) -> set[Key]:
        """The blocks to evaluate again: the surface leaves one of two neighbours, and the other has none there."""
        blocks = set()
        for key, patch in self.patches.items():
            for axis, end in itertools.product(range(3), range(2)):
                x, y, z = (index + (2 * end - 1) * (axis == at) for at, index in enumerate(key))
                other = (x, y, z)
                if min(other) < 0 or max(other) >= self._grid.blocks:
                    continue
                differs = patch.signs[axis, end] != self._signs(other, axis, 1 - end)
                if differs.any():
                    self._force(key, axis, end, differs)
                    self._force(other, axis, 1 - end, differs)
                    blocks |= {key, other}
        return blocks

    def _signs(self, key: Key, axis: int, end: int) -> np.ndarray:
        """The inside points of a face; an unrefined block has one sign."""
        if key in self.patches:
            return self.patches[key].signs[axis, end]
        return self._coarse[tuple(part.start for part in self._grid.coarse(key))] < 0

    def _force(self, key: Key, axis: int, end: int, points: np.ndarray) -> None:
        """Mark the coarse cells of a block at marked points [B + 1, B + 1] of one of its faces."""
        cells, stride = self._grid.cells, self._grid.stride
        marked = np.zeros((cells, cells), bool)
        for row, column in itertools.product(range(cells), repeat=2):
            here = points[row * stride : (row + 1) * stride + 1, column * stride : (column + 1) * stride + 1]
            marked[row, column] = here.any()
        forced = self._forced.get(key, np.zeros((cells,) * 3, bool)).copy()
        side = tuple(-end if at == axis else slice(None) for at in range(3))
        forced[side] |= marked
        self._forced[key] = forced


def weld(patches: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Vertices [V, 3] and faces int64 [F, 3] of patches (vertices in cells, faces); equal border vertices are merged.

    Blocks compute the same numbers for a vertex on their common face (`marching_cubes`). Triangles that become
    degenerate are removed.
    """
    starts = np.cumsum([0, *(len(vertices) for vertices, _ in patches)])
    vertices = np.concatenate([vertices for vertices, _ in patches])
    border = np.flatnonzero((vertices % BLOCK == 0).any(axis=1))
    _, first, which = np.unique(vertices[border], axis=0, return_index=True, return_inverse=True)
    target = np.arange(len(vertices))
    target[border] = border[first[which.reshape(-1)]]
    is_own = target == np.arange(len(vertices))
    number = (np.cumsum(is_own) - 1)[target]
    # Patch by patch into one array, because there may be tens of millions of triangles.
    faces, count = np.empty((sum(len(part) for _, part in patches), 3), np.int64), 0
    for (_, part), start in zip(patches, starts, strict=False):
        renumbered = number[part + start]
        first, second, third = renumbered.T
        renumbered = renumbered[(first != second) & (second != third) & (third != first)]
        faces[count : count + len(renumbered)] = renumbered
        count += len(renumbered)
    return vertices[is_own], faces[:count]
