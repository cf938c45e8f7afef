"""Paint a texture of a mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import cv2
import numpy as np
import trimesh
from scipy.ndimage import distance_transform_edt

from models.surface.charts import Layout, unwrap
from models.surface.color import Corners, Painted, Photographs, between
from models.surface.mesh import Surface

TEXTURED_FACES = 100_000  # default number of triangles: the texture has the detail
SUBTEXEL = 4  # fractional bits of vertex coordinates in drawing
TEXELS = 2**18  # texels at a time


def texture(
    mesh: trimesh.Trimesh,
    size: int,
    painted: Painted,
    photographs: Photographs,
    progress: Callable[[Iterable], Iterable],
) -> Surface:
    """The mesh with a texture of `size` texels per side; raises UserError if it is too small.

    `painted`: its vertices, with weights. Vertices on chart borders are duplicated for each chart. Texels outside
    charts get the colour of the nearest one, so that interpolation shows no seams.
    """
    layout, vertices = unwrap(mesh, size), np.asarray(mesh.vertices)
    painted = replace(painted, weights=_seen_around(painted.weights, mesh.faces))
    face = _face_of_texels(layout, size)
    rows, columns = np.nonzero(face >= 0)
    picture = np.zeros((size, size, 3), np.uint8)
    for start in progress(range(0, len(rows), TEXELS)):
        row, column = rows[start : start + TEXELS], columns[start : start + TEXELS]
        corner = layout.faces[face[row, column]]
        place = np.stack([(column + 0.5) / size, 1.0 - (row + 0.5) / size], axis=1)
        corners = Corners(layout.source[corner], _barycentric(place, layout.uv[corner]).astype(np.float32))
        colors = between(corners.mean(vertices), corners, painted, photographs)
        picture[row, column] = np.rint(np.clip(colors, 0.0, 1.0) * 255.0)
    nearest = distance_transform_edt(face < 0, return_distances=False, return_indices=True)
    flat = trimesh.Trimesh(vertices[layout.source], layout.faces, process=False)
    normals = np.asarray(mesh.vertex_normals, np.float32)[layout.source]
    return Surface(flat, normals, None, layout.uv.astype(np.float32), picture[tuple(nearest)])


def _seen_around(weights: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Weights [V, N] that are 0 also at the neighbours of vertices without a weight.

    Interpolated, they are continuous, and 0 in each triangle that a photograph sees only in part.
    """
    found = weights.copy()
    for one, kept in zip(weights, found, strict=True):
        kept[faces[(one[faces] == 0.0).any(axis=1)]] = 0.0
    return found


def _face_of_texels(layout: Layout, size: int) -> np.ndarray:
    """The face of each texel, int32 [size, size], -1 for none; includes texels that a face only touches."""
    drawn = np.full((size, size), -1, np.int32)
    places = np.stack([layout.uv[:, 0] * size - 0.5, (1.0 - layout.uv[:, 1]) * size - 0.5], axis=1)
    fixed = np.rint(places * (1 << SUBTEXEL)).astype(np.int32)[layout.faces]
    for index, corners in enumerate(fixed):
        cv2.fillConvexPoly(drawn, corners, (index,), lineType=cv2.LINE_8, shift=SUBTEXEL)
    return drawn


def _barycentric(places: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Barycentric coordinates [P, 3] in triangles [P, 3, 2] of points [P, 2], clamped to the triangle."""
    edge_1, edge_2, away = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0], places - corners[:, 0]
    area = edge_1[:, 0] * edge_2[:, 1] - edge_1[:, 1] * edge_2[:, 0]
    area = np.where(np.abs(area) < 1e-20, 1.0, area)
    second = (away[:, 0] * edge_2[:, 1] - away[:, 1] * edge_2[:, 0]) / area
    third = (edge_1[:, 0] * away[:, 1] - edge_1[:, 1] * away[:, 0]) / area
    share = np.clip(np.stack([1.0 - second - third, second, third], axis=1), 0.0, 1.0)
    return share / np.maximum(share.sum(axis=1, keepdims=True), 1e-12)
