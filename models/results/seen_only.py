"""Extract only the seen part of a surface, if the rest is removed anyway."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import trimesh

from models.estimators.seen_space import SeenSpace
from models.mesh.clean import with_faces
from models.methods.protocol import LevelSet
from models.requests import LARGEST, VIEWS, MeshRequest


def seen_space(level_set: LevelSet, request: MeshRequest, size: float) -> SeenSpace | None:
    """The space in which to extract a mesh in a box of edge length `size`; None for all of it.

    In a box of the user, or at another level, the hidden part may be seen.
    """
    is_whole = request.clean not in (VIEWS, LARGEST) or request.bbox is not None or request.threshold
    if is_whole or level_set.seen_space is None:
        return None
    return level_set.seen_space(size / (request.resolution - 1))


def within(level_set: LevelSet, space: SeenSpace) -> LevelSet:
    """The field, with everything outside `space` outside the surface."""
    return replace(level_set, outward=lambda points: np.maximum(level_set.outward(points), space.distance(points)))


def without_boundary(mesh: trimesh.Trimesh, space: SeenSpace) -> trimesh.Trimesh:
    """The mesh of a field `within` a space, without the triangles on the boundary of the space."""
    stays = ~space.bounds(np.asarray(mesh.vertices))[mesh.faces].all(axis=1)
    return with_faces(mesh, stays) if stays.any() else mesh  # what no camera sees is removed, and reported, later
