"""Merge the patches of neighbouring blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.surface.samples import BLOCK


def weld(patches: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Vertices [V, 3] and faces int64 [F, 3] of patches (vertices in cells, faces); equal border vertices are merged.

    Blocks compute the same numbers for a vertex on their common face (`block.march`). Triangles that become degenerate
    are removed.
    """
    starts = np.cumsum([0, *(len(vertices) for vertices, _ in patches)])
    vertices = np.concatenate([vertices for vertices, _ in patches])
    border = np.flatnonzero((vertices % BLOCK == 0).any(axis=1))
    _, first, which = np.unique(vertices[border], axis=0, return_index=True, return_inverse=True)
    target = np.arange(len(vertices))
    target[border] = border[first[which.reshape(-1)]]
    kept = target == np.arange(len(vertices))
    number = (np.cumsum(kept) - 1)[target]
    # Patch by patch into one array, because there may be tens of millions of triangles.
    faces, count = np.empty((sum(len(part) for _, part in patches), 3), np.int64), 0
    for (_, part), start in zip(patches, starts, strict=False):
        renumbered = number[part + start]
        first, second, third = renumbered.T
        renumbered = renumbered[(first != second) & (second != third) & (third != first)]
        faces[count : count + len(renumbered)] = renumbered
        count += len(renumbered)
    return vertices[kept], faces[:count]
