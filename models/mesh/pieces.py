"""Remove components of a mesh: cavities, small ones, and what stands apart from the object.

Working frame; C components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import trimesh
from scipy.spatial import cKDTree

from models.mesh.clean import face_areas, normals_of, with_faces
from models.mesh.visibility import dots, lengths

SMALL_PIECE = 0.01  # of the area of the largest component: smaller ones are removed
NO_SFM_POINTS = np.zeros((0, 3))
# Of `without_bystanders`: lengths of mean normals, absolute and relative to that of the object; the distance from the
# object as a fraction of its size; and the fractions of a component and of the cameras that are outside its hull.
LEAST_SIDED, MORE_SIDED, APART, MOSTLY_OUTSIDE = 0.5, 1.5, 0.1, 0.9
SUPPORTING = 0.03  # radii within which an SfM point supports a component
LEAST_SUPPORT = 5  # points, of a small component that is kept because of them
MOST_SUPPORT = 0.5  # fraction of these points; a component with more is no bystander
FACING, FACING_FACES = 0.1, 2**18  # fraction of the faces of a component that it turns to a camera; faces examined


@dataclass(frozen=True)
class Cleaned:
    """A mesh without some of its components."""

    mesh: trimesh.Trimesh
    removed: int  # number of removed components
    kept: int  # number of remaining components
    area: float = 0.0  # fraction of the area that is removed
    points: float | None = None  # the same of the SfM points near the mesh; None without any

    @property
    def words(self) -> str:
        """How many components are removed, and what part of the mesh that is."""
        supported = "" if self.points is None else f", {self.points:.1%} of the SfM points"
        share = f" ({self.area:.1%} of the area{supported})" if self.removed else ""
        return f"{self.removed}{share}, {self.kept} kept"


def without_dust(mesh: trimesh.Trimesh, small: float = SMALL_PIECE, points: np.ndarray = NO_SFM_POINTS) -> Cleaned:
    """Remove the components with an area below `small` of the largest one's.

    One that supports as large a part of the SfM points [P, 3] stays, if only small ones are removed.
    """
    count, label = pieces(mesh)
    area = np.bincount(label, weights=face_areas(mesh), minlength=count)
    support = _support(mesh, label, count, points)
    is_supported = support >= max(LEAST_SUPPORT, small * support.max()) if small < 1.0 else np.zeros(count, bool)
    return _with_pieces(mesh, label, (area >= small * area.max()) | is_supported, support)


def without_cavities(mesh: trimesh.Trimesh, centers: np.ndarray) -> Cleaned:
    """Remove the closed components that bound empty space without a camera, whose centres are [C, 3].

    No photograph shows such a cavity inside an object. Faces are oriented outwards: its signed volume is negative. A
    mesh of such components only is inside out, and is kept.
    """
    count, label = pieces(mesh)
    middle, vertices = np.mean(mesh.bounds, axis=0), np.asarray(mesh.vertices)
    volumes = np.concatenate([dots(vertices[faces[:, 0]] - middle, normal) for faces, normal in normals_of(mesh)])
    is_cavity = np.bincount(label, weights=volumes, minlength=count) < 0
    is_inner = is_cavity[label]
    faces, names = mesh.faces[is_inner], label[is_inner]
    edges = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    _, first, uses = np.unique(edges, axis=0, return_index=True, return_counts=True)
    is_cavity[names[first[uses == 1] // 3]] = False  # open components
    lows, highs = np.full((count, 3), np.inf), np.full((count, 3), -np.inf)
    np.minimum.at(lows, names, vertices[faces].min(axis=1))
    np.maximum.at(highs, names, vertices[faces].max(axis=1))
    for center in centers:
        is_cavity &= ~((center > lows) & (center < highs)).all(axis=1)
    return _with_pieces(mesh, label, ~is_cavity | is_cavity.all(), np.zeros(count, int))


def _support(mesh: trimesh.Trimesh, label: np.ndarray, count: int, points: np.ndarray) -> np.ndarray:
    """The number of SfM points [P, 3] near each component of `pieces`, int [C]."""
    if not len(points):
        return np.zeros(count, int)
    of_vertex = np.zeros(len(mesh.vertices), int)
    of_vertex[mesh.faces] = label[:, None]
    spacing = 2.0 * np.sqrt(face_areas(mesh).mean())  # of the vertices
    distances, nearest = cKDTree(mesh.vertices).query(points, distance_upper_bound=SUPPORTING + spacing)
    return np.bincount(of_vertex[nearest[np.isfinite(distances)]], minlength=count)


def without_bystanders(mesh: trimesh.Trimesh, centers: np.ndarray, points: np.ndarray = NO_SFM_POINTS) -> Cleaned:
    """Remove what stands apart from an object and was seen from one side only, such as a wall or a neighbour behind it.

    `mesh` has no unseen faces, so the mean of its unit normals tells from how many sides a component was seen: its
    length is 1 for a wall, 0.5 for half a sphere, and 0 for a closed surface. The object is the component that has the
    most SfM points [P, 3], times the number of cameras that it faces; without points the one with the largest area,
    times 1 less this length. Nothing is removed if cameras, with centres [C, 3], are within its convex hull, as in a
    room, and no component that has most of the points.
    """
    count, label = pieces(mesh)
    normals = np.concatenate([normal for _, normal in normals_of(mesh)])
    areas = np.bincount(label, weights=lengths(normals), minlength=count)
    total = np.stack([np.bincount(label, weights=normals[:, axis], minlength=count) for axis in range(3)], axis=1)
    one_sided = lengths(total) / areas
    support = _support(mesh, label, count, points)
    rank = areas * (1.0 - one_sided)
    if support.any():
        some = slice(None, None, -(-len(label) // FACING_FACES))
        corners, sizes = np.asarray(mesh.vertices)[mesh.faces[some, 0]], np.bincount(label[some], minlength=count)
        faced = [np.bincount(label[some], dots(c - corners, normals[some]) > 0, count) for c in centers]
        rank = support * np.sum(np.stack(faced) > FACING * sizes, axis=0)
    largest = int(np.argmax(rank))
    stays = one_sided < max(LEAST_SIDED, MORE_SIDED * one_sided[largest])
    stays |= support > MOST_SUPPORT * support.sum()
    if stays.all():
        return Cleaned(mesh, 0, count)

    def within(name: int) -> np.ndarray:
        return mesh.vertices[np.unique(mesh.faces[label == name])]

    vertices = within(largest)
    near, size = cKDTree(vertices), np.ptp(vertices, axis=0).max()
    # The hull is approximated by its planes with 162 normals, as meshes have up to millions of vertices on it.
    hull = [(side, (vertices @ side).max()) for side in trimesh.creation.icosphere(2).vertices]

    def outside(points: np.ndarray) -> float:
        return float(np.mean(np.logical_or.reduce([points @ side > reach for side, reach in hull])))

    if outside(centers) < MOSTLY_OUTSIDE:
        return Cleaned(mesh, 0, count)
    for name in np.flatnonzero(~stays):
        part = within(int(name))
        stays[name] = near.query(part)[0].min() < APART * size or outside(part) < MOSTLY_OUTSIDE
    return _with_pieces(mesh, label, stays, support)


def _with_pieces(mesh: trimesh.Trimesh, label: np.ndarray, stays: np.ndarray, support: np.ndarray) -> Cleaned:
    """The components of `pieces` that stay, bool [C], with `support` [C]; the mesh itself if all do."""
    kept = mesh if stays.all() else with_faces(mesh, stays[label])
    removed, near = np.where(stays[label], 0.0, areas := face_areas(mesh)), int(support.sum())
    points = float(support[~stays].sum() / near) if near else None
    return Cleaned(kept, int((~stays).sum()), int(stays.sum()), float(removed.sum() / areas.sum()), points)


def pieces(mesh: trimesh.Trimesh) -> tuple[int, np.ndarray]:
    """The number of components, and the component of each face [F]; triangles with a common vertex are connected."""
    faces = mesh.faces.astype(np.int32)
    edges = np.concatenate([faces[:, :2], faces[:, 1:]])
    labels = trimesh.graph.connected_component_labels(edges, len(mesh.vertices))
    names, label = np.unique(labels[faces[:, 0]], return_inverse=True)
    return len(names), label.reshape(-1)
