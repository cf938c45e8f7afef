"""Unwrap a mesh, and paint a texture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
import trimesh
from scipy.ndimage import distance_transform_edt

from data.errors import UserError
from models.surface.mesh import Surface

TEXTURED_FACES = 100_000  # default number of triangles: unwrapping more takes minutes, and the texture has the detail
PADDING = 2  # texels between charts: interpolation needs one, the first mipmap level two
SUBTEXEL = 4  # fractional bits of vertex coordinates in drawing
FEWEST_TEXELS = 0.5  # mean texels per triangle: a smaller texture shows mostly the borders of charts

Paint = Callable[[np.ndarray, np.ndarray], np.ndarray]  # points, normals [P, 3] -> RGB [P, 3] in [0, 1]


@dataclass(frozen=True)
class Layout:
    """A mesh cut into charts in texture space."""

    source: np.ndarray  # [V] index of the original vertex of each new one
    faces: np.ndarray  # [F, 3] indices of new vertices
    uv: np.ndarray  # [V, 2] in [0, 1]


def unwrap(mesh: trimesh.Trimesh, size: int) -> Layout:
    """Charts for a texture of `size` texels per side; raises UserError if it is too small."""
    if len(mesh.faces) * FEWEST_TEXELS > size * size:
        raise _too_small(size, f"{len(mesh.faces)} triangles")
    import xatlas  # imported only here

    atlas = xatlas.Atlas()
    atlas.add_mesh(np.asarray(mesh.vertices, np.float32), np.asarray(mesh.faces, np.uint32))
    packing = xatlas.PackOptions()
    packing.resolution, packing.padding, packing.bilinear = size, PADDING, True
    atlas.generate(pack_options=packing)
    # xatlas shrinks charts that do not fit, and the padding with them, to less than a texel.
    if atlas.atlas_count > 1 or max(atlas.width, atlas.height) > PADDING * size:
        raise _too_small(size, f"{atlas.chart_count} charts")
    source, faces, uv = atlas[0]
    # xatlas divides by the width and height that it used; the larger one keeps the charts' aspect.
    scale = np.array([atlas.width, atlas.height]) / max(atlas.width, atlas.height, size)
    return Layout(source.astype(np.int64), faces.astype(np.int64), (uv * scale).astype(np.float64))


def _too_small(size: int, what: str) -> UserError:
    """The error for a texture that is too small."""
    return UserError(f"--texture_size {size}: too small for the {what} of this mesh; raise it, or lower --decimate")


def texture(mesh: trimesh.Trimesh, size: int, paint: Paint) -> Surface:
    """The mesh with a texture of `size` texels per side, painted by `paint`; raises UserError if it is too small.

    Vertices on chart borders are duplicated for each chart. Texels outside charts get the colour of the nearest one, so
    that interpolation shows no seams.
    """
    layout = unwrap(mesh, size)
    face = _face_of_texels(layout, size)
    rows, columns = np.nonzero(face >= 0)
    corners = layout.faces[face[rows, columns]]
    place = np.stack([(columns + 0.5) / size, 1.0 - (rows + 0.5) / size], axis=1)
    share = _barycentric(place, layout.uv[corners])
    source = layout.source[corners]
    points = np.einsum("pk,pkc->pc", share, np.asarray(mesh.vertices)[source])
    normals = np.einsum("pk,pkc->pc", share, np.asarray(mesh.vertex_normals)[source])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    picture = np.zeros((size, size, 3), np.uint8)
    picture[rows, columns] = np.rint(np.clip(paint(points, normals), 0.0, 1.0) * 255.0)
    nearest = distance_transform_edt(face < 0, return_distances=False, return_indices=True)
    flat = trimesh.Trimesh(np.asarray(mesh.vertices)[layout.source], layout.faces, process=False)
    normals = np.asarray(mesh.vertex_normals, np.float32)[layout.source]
    return Surface(flat, normals, None, layout.uv.astype(np.float32), picture[tuple(nearest)])


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
