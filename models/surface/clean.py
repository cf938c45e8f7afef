"""What of a mesh is kept: its large pieces, the part that cameras see, and as many triangles as are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import trimesh
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from data.errors import UserError
from data.parsed_scene import MASK_HALF
from models.surface.mesh import Surface
from models.surface.visibility import Camera, Visibility, project

SMALL = 0.01  # of the largest piece's area: what is below is dust
# Masks grow by 50 pixels of a DTU photograph, 1600 wide, before what lies outside goes (as published for NeuS without
# masks); in photographs of other sizes by the same part of the width.
DILATION = 50 / 1600
MOST_FACES = 4_000_000  # beyond it, thinning out takes longer than a training may wait
FACES = 2**20  # whose corners are gathered at a time


@dataclass(frozen=True)
class Cleaned:
    """A mesh without some of its pieces."""

    mesh: trimesh.Trimesh
    removed: int  # pieces that went
    kept: int  # pieces that stay


def without_dust(mesh: trimesh.Trimesh, small: float = SMALL) -> Cleaned:
    """Without the pieces whose area is below `small` of the largest one's."""
    count, label = pieces(mesh)
    area = np.bincount(label, weights=face_areas(mesh), minlength=count)
    stays = area >= small * area.max()
    if stays.all():
        return Cleaned(mesh, 0, count)
    return Cleaned(with_faces(mesh, stays[label]), int((~stays).sum()), int(stays.sum()))


def pieces(mesh: trimesh.Trimesh) -> tuple[int, np.ndarray]:
    """How many pieces a mesh has, and the piece of each face [F]; triangles that share a corner hang together."""
    faces, vertices = mesh.faces, len(mesh.vertices)
    rows, columns = (part.T.reshape(-1).astype(np.int32) for part in (faces[:, :2], faces[:, 1:]))
    graph = coo_matrix((np.ones(len(rows), bool), (rows, columns)), shape=(vertices, vertices))
    labels = connected_components(graph, directed=False)[1][faces[:, 0]]
    names, label = np.unique(labels, return_inverse=True)
    return len(names), label.reshape(-1)


def face_areas(mesh: trimesh.Trimesh) -> np.ndarray:
    """The area of each face, [F]."""
    return 0.5 * np.concatenate([np.linalg.norm(normal, axis=1) for _, normal in _normals(mesh)])


def _normals(mesh: trimesh.Trimesh) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Faces [K, 3], FACES at a time, with their normals [K, 3], which are twice as long as the faces' areas."""
    vertices = np.asarray(mesh.vertices)
    for start in range(0, len(mesh.faces), FACES):
        faces = mesh.faces[start : start + FACES]
        corners = vertices[faces]
        yield faces, np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])


def with_faces(mesh: trimesh.Trimesh, stays: np.ndarray) -> trimesh.Trimesh:
    """The mesh of those faces (bool [F]) and of the vertices that they have."""
    faces = mesh.faces[stays]
    used = np.zeros(len(mesh.vertices), bool)
    used[faces] = True
    return trimesh.Trimesh(mesh.vertices[used], (np.cumsum(used) - 1)[faces], process=False)


def as_seen(
    mesh: trimesh.Trimesh, cameras: Sequence[Camera], masks: Sequence[np.ndarray] | None, visibility: Visibility
) -> trimesh.Trimesh:
    """Without the faces that no camera sees a corner of, or of which a corner lies outside of a dilated mask.

    masks: uint8 [H, W] of each camera; None for a scene without. What a photograph does not show is not outside of its
    mask. The mesh may come back without faces.
    """
    vertices, normals = np.asarray(mesh.vertices), vertex_normals(mesh)
    seen = np.zeros(len(vertices), bool)
    for camera in cameras:
        asked = np.flatnonzero(camera.shows(*project(vertices, camera)) & ~seen)
        seen[asked] = visibility.sees(vertices[asked], normals[asked], camera.center)
    stays = seen[mesh.faces].any(axis=1)
    if masks is not None:
        stays &= within_masks(mesh, cameras, masks)[mesh.faces].all(axis=1)
    return with_faces(mesh, stays)


def within_masks(mesh: trimesh.Trimesh, cameras: Sequence[Camera], masks: Sequence[np.ndarray]) -> np.ndarray:
    """Whether each vertex lies in the dilated mask of every photograph that shows its place: bool [V]."""
    vertices = np.asarray(mesh.vertices)
    within = np.ones(len(vertices), bool)
    for camera, mask in zip(cameras, masks, strict=True):
        pixels, depth = project(vertices, camera)
        shown = camera.shows(pixels, depth)
        places = np.rint(pixels[shown]).astype(int)
        within[shown] &= _dilated(mask)[places[:, 1], places[:, 0]]
    return within


def _dilated(mask: np.ndarray) -> np.ndarray:
    """A mask grown by DILATION, bool [H, W]."""
    radius = max(1, round(DILATION * mask.shape[1]))
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1,) * 2)
    return cv2.dilate((mask > MASK_HALF).astype(np.uint8), kernel).astype(bool)


def decimated(mesh: trimesh.Trimesh, faces: int) -> trimesh.Trimesh:
    """With about that many triangles, where there are more, by quadric errors (fast-simplification)."""
    if len(mesh.faces) <= faces:
        return mesh
    import fast_simplification  # which only this needs

    vertices, triangles = fast_simplification.simplify(
        np.asarray(mesh.vertices, np.float32), np.asarray(mesh.faces, np.int32), target_count=faces
    )
    return trimesh.Trimesh(vertices.astype(np.float64), triangles.astype(np.int64), process=False)


def thinned(surface: Surface, faces: int) -> tuple[trimesh.Trimesh, np.ndarray | None]:
    """The mesh with about `faces` triangles, and its colours uint8 [V, 3], where it has any.

    Raises UserError for one too large.
    """
    mesh, rgb, count = surface.mesh, surface.rgb, len(surface.mesh.faces)
    if count > MOST_FACES:
        raise UserError(
            f"the mesh has {count} triangles, more than the {MOST_FACES} that can be decimated for a page: "
            "lower train.mesh_resolution or --resolution, or open the mesh file"
        )
    thin = decimated(mesh, faces)
    if rgb is not None and thin is not mesh:
        rgb = rgb[cKDTree(np.asarray(mesh.vertices)).query(np.asarray(thin.vertices))[1]]
    return thin, None if rgb is None else np.asarray(rgb, np.uint8)


def is_watertight(mesh: trimesh.Trimesh) -> bool:
    """Whether every edge belongs to two triangles that run along it in opposite directions, and to no others."""
    count, faces = len(mesh.vertices), mesh.faces
    if len(faces) == 0 or len(faces) % 2:
        return False
    edges = np.empty(3 * len(faces), np.int64)  # one number each: its ends without their order, then that
    for index, (a, b) in enumerate(((0, 1), (1, 2), (2, 0))):
        begin, end = faces[:, a], faces[:, b]
        part = edges[index * len(faces) : (index + 1) * len(faces)]
        part[:] = 2 * (np.minimum(begin, end) * count + np.maximum(begin, end)) + (begin > end)
    edges.sort()
    forth, back = edges[::2], edges[1::2]
    return bool((forth % 2 == 0).all() and (back == forth + 1).all() and (np.diff(forth) > 0).all())


def vertex_normals(mesh: trimesh.Trimesh) -> np.ndarray:
    """Unit normals [V, 3] of the vertices, by the areas of the triangles about them, for tens of millions of them."""
    total = np.zeros((len(mesh.vertices), 3))
    for faces, normal in _normals(mesh):
        for axis in range(3):
            total[:, axis] += np.bincount(faces.reshape(-1), np.repeat(normal[:, axis], 3), len(total))
    return total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), np.finfo(float).tiny)
