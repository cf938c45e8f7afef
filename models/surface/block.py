"""One block of cells: evaluated near the surface, and marched.

A block has as many cells per axis as its coarse lattice times the stride. Values are zero on the surface, negative
inside. Points that are not evaluated are interpolated between values of one sign, and so have that sign.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mcubes
import numpy as np

from data.scenes.frustum import children
from models.surface.lattice import (
    halved,
    halved_marks,
    mixed_corners,
    mixed_parents,
    points_of_parents,
    steepest,
)
from models.surface.rules import Rule

Sample = Callable[[np.ndarray], np.ndarray]  # points int [P, 3] in the block, in cells -> values [P]


@dataclass(frozen=True)
class Block:
    """The coarse values of a block before refinement."""

    values: np.ndarray  # [K + 1]^3, evaluated on its coarse lattice
    active: np.ndarray  # bool [K]^3: the coarse cells to refine
    forced: np.ndarray  # bool [K]^3: the coarse cells to evaluate completely
    stride: int  # cells of the block per coarse cell, a power of 2
    spacing: np.ndarray  # [3], of the block's cells, working-frame units


@dataclass(frozen=True)
class Refined:
    """A block at full resolution."""

    values: np.ndarray  # [B + 1]^3; evaluated at the corners of every cell that the surface crosses
    steepest: float  # the largest gradient norm found


def refine(block: Block, rule: Rule, sample: Sample) -> Refined:
    """Halve the lattice down to the block's cells, refining only cells that `rule` cannot exclude.

    An excluded cell with values of both signs on its border is refined, too.
    """
    values, known, stride = block.values, np.ones(block.values.shape, bool), block.stride
    active, forced, slope = block.active | block.forced, block.forced, 0.0
    while stride > 1:
        stride //= 2
        values, known = halved(values), halved_marks(known)
        active = _evaluate(values, known, active, stride, sample)
        slope = max(slope, steepest(values, known, stride * block.spacing))
        forced = children(forced)
        active = children(active) & rule.may_cross(values, stride * block.spacing, coarse=False) | forced
    return Refined(values, slope)


def _evaluate(values: np.ndarray, known: np.ndarray, cells: np.ndarray, stride: int, sample: Sample) -> np.ndarray:
    """Evaluate, in place, the points of these parent cells and of all cells that the surface enters from them.

    Returns the evaluated parent cells, including the given ones.
    """
    wanted = cells | mixed_parents(values)
    while True:
        points = points_of_parents(wanted) & ~known
        if points.any():
            values[points] = sample(np.argwhere(points) * stride)
            known |= points
        further = mixed_parents(values) & ~wanted
        if not further.any():
            return wanted
        wanted |= further


def march(values: np.ndarray, origin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vertices float64 [V, 3], in cells from `origin` [3], and faces int32 [F, 3] of a block's surface.

    A vertex lies on an edge of the lattice. Its position depends only on that edge, so that two blocks with a common
    edge compute the same numbers.
    """
    if not mixed_corners(values).any():
        return np.zeros((0, 3)), np.zeros((0, 3), np.int32)
    places, faces = mcubes.marching_cubes(-values, 0.0)
    whole = np.floor(places).astype(np.int64)
    axis = np.argmax(places - whole, axis=1)
    rows = np.arange(len(places))
    further = whole.copy()
    further[rows, axis] += places[rows, axis] > whole[rows, axis]
    here, there = values[tuple(whole.T)], values[tuple(further.T)]
    exact = (whole + origin).astype(np.float64)
    exact[rows, axis] += here / np.where(here == there, 1.0, here - there) * (further != whole)[rows, axis]
    return exact, faces.astype(np.int32)


def face_signs(values: np.ndarray) -> np.ndarray:
    """Whether the points of the six faces are inside, bool [3 axes, 2 ends, B + 1, B + 1]."""
    inside = values < 0
    return np.stack([np.stack([np.take(inside, end, axis=axis) for end in (0, -1)]) for axis in range(3)])
