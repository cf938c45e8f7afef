"""The ground truth of a surface from a file, triangles or points, and whether it is in the frame of the scene.

Checked by its position and its distance from the surface, in the working frame: the region of interest is the unit
sphere at the origin. Also: points of meshes, uniform by area, and distances of points to their triangles.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import igl
import numpy as np
import trimesh
from scipy.spatial import cKDTree

from data.errors import UserError
from data.io.files import is_file, read_regular
from data.scenes.readers.points import read_points
from models.mesh.clean import face_areas
from models.mesh.mesh import MESH_HEAD_BYTES, has_area, read_mesh

LEAST_POINTS = 100  # the fewest points that are taken for a surface
MOST_POINTS = 1_000_000  # random points from which distances are measured; distances to the cloud use all points


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """Ground truth in the working frame: a mesh, or points without triangles."""

    source: str  # its name in messages: a flag or key and the file
    points: np.ndarray  # [N, 3] vertices, or the points
    faces: np.ndarray | None  # [F, 3]; None for points

    @property
    def mesh(self) -> trimesh.Trimesh | None:
        """The triangles; None for points."""
        return None if self.faces is None else trimesh.Trimesh(self.points, self.faces, process=False)

    def spread(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """At most `count` of its points, for a mesh uniform by area: [P, 3]."""
        mesh = self.mesh
        if mesh is not None:
            return sample_surface(mesh, count, generator)
        if len(self.points) <= count:
            return self.points
        return generator.choice(self.points, count, replace=False)


def read_ground_truth(path: Path | str, source: str, to_working: np.ndarray | None) -> GroundTruth:
    """Read a mesh (PLY, OBJ, STL, GLB) or the points of a PLY file without faces.

    to_working: [4, 4], from the file's frame to the working frame; None for the identity. Raises UserError for a file
    that is missing, damaged, empty or not finite.
    """
    path = Path(path)
    if _is_points(path):
        cloud = read_points(path)
        if cloud is None:
            raise UserError(f"{path}: contains neither triangles nor points; give a mesh or points")
        if len(cloud.xyz) < LEAST_POINTS:
            raise UserError(
                f"{path}: contains {len(cloud.xyz)} points and no triangles, too few to show a surface; give a mesh "
                f"or at least {LEAST_POINTS} points"
            )
        return GroundTruth(source, moved(cloud.xyz, to_working), None)
    mesh = read_mesh(path)
    found = GroundTruth(source, moved(np.asarray(mesh.vertices, np.float64), to_working), np.asarray(mesh.faces))
    # It may be so small that it degenerates in float64 at its position.
    if (triangles := found.mesh) is None or not has_area(triangles):
        raise UserError(
            f"{path}: its triangles have no area in the frame of the scene; give the mesh in the units of the scene"
        )
    return found


def _is_points(path: Path) -> bool:
    """Whether the file is a PLY without faces in its header."""
    try:
        if path.suffix.lower() != ".ply" or not is_file(path):
            return False
        header = read_regular(path, MESH_HEAD_BYTES).partition(b"end_header")[0]
    except OSError:
        return False  # the error is reported when it is read as a mesh
    found = re.search(rb"element\s+(?:face|tristrips)\s+(\d{1,18})\s", header)
    return header.startswith(b"ply") and (found is None or int(found[1]) == 0)


def moved(points: np.ndarray, matrix: np.ndarray | None) -> np.ndarray:
    """Transform points [N, 3] by a matrix [4, 4]; None for the identity."""
    return points if matrix is None else points @ matrix[:3, :3].T + matrix[:3, 3]


LEAST_INSIDE = 0.05  # smallest fraction of the ground truth inside the region of interest
SMALLEST = 0.03  # smallest extent, in radii of the region
LARGEST = 3.0  # a larger extent is a wrong scale rather than an offset
REACH = 0.9  # quantile of the distances from the centre, which ignores a few far points
MARGIN = 1.05  # radii; a surface may touch the sphere
FEWEST = 100  # smallest number of points whose distances tell a frame
NEAR = 0.05  # fraction of the extent below which a distance counts as the same frame
BETTER = 0.3  # factor on the distance that the other frame must achieve
SAMPLES = 20_000  # largest number of points of each surface: their spacing is far below NEAR


def require_in_region(points: np.ndarray, source: str, frames: str) -> None:
    """Raises UserError if points [N, 3] are outside the region of interest, or have another size.

    source: the start of the message; frames: the advice at its end.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers so large that the sum overflows
        middle, reach = _place(points)
        inside = float(np.mean(np.linalg.norm(points, axis=1) <= MARGIN))
        off = float(np.linalg.norm(middle))
    if inside >= LEAST_INSIDE and (reach >= SMALLEST or len(points) < FEWEST):
        return
    told = f"its centre is {off:.3g} radii from the centre of the region of interest"
    if reach > LARGEST or reach < SMALLEST:
        told = (
            f"it extends {reach:.3g} radii from the centre of the region of interest, the object should extend 0.2 to 1"
        )
    raise UserError(f"{source}: has another frame or scale than the scene: {told}; {frames}")


def frame_note(found: np.ndarray, given: np.ndarray, otherwise: np.ndarray, source: str, frames: str) -> str:
    """A note on ground truth [N, 3] that is far from the surface's points [P, 3]; "" if it is near.

    otherwise: the same ground truth, read in the other frame of `--frame`, [N, 3]. Raises UserError if it fits there.
    source: the start of the message; frames: the advice at its end.
    """
    own = _apart(found, given)
    if own <= NEAR * _place(given)[1] or len(given) < FEWEST:
        return ""
    apart = _apart(found, otherwise)
    if apart <= min(BETTER * own, NEAR * _place(otherwise)[1]):
        raise UserError(
            f"{source}: has another frame or scale than the scene: read in the other frame, it is {own / apart:.0f} "
            f"times closer to the surface; {frames}"
        )
    return f"{source}: is {own:.2g} radii from the surface, which is unfinished, or has another frame: {frames}"


def _place(points: np.ndarray) -> tuple[np.ndarray, float]:
    """The centre [3] and the extent of points."""
    middle = np.median(points, axis=0)
    return middle, float(np.quantile(np.linalg.norm(points - middle, axis=1), REACH))


def _apart(found: np.ndarray, given: np.ndarray) -> float:
    """The mean of both median distances to nearest points."""
    return 0.5 * float(np.median(cKDTree(found).query(given)[0]) + np.median(cKDTree(given).query(found)[0]))


def sample_surface(mesh: trimesh.Trimesh, count: int, generator: np.random.Generator) -> np.ndarray:
    """Points [count, 3] uniform by area on the faces of `mesh`; raises ValueError for a mesh without area."""
    return sample_faces(mesh, count, generator)[0]


def sample_faces(mesh: trimesh.Trimesh, count: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points [count, 3] uniform by area on the faces of `mesh`, and the face [count] of each.

    Faces are selected in proportion to their area; the point on a face follows Osada et al., "Shape distributions", ACM
    TOG 21 (2002), equation 1. Raises ValueError for a mesh without area.
    """
    corners = mesh.vertices[mesh.faces]
    edge_1, edge_2 = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    reached = np.cumsum(face_areas(mesh))
    if len(reached) == 0 or not reached[-1] > 0.0:
        raise ValueError("the mesh has no area to sample")
    # side="right" skips faces without area; the minimum handles a number that is rounded up to the total.
    face = np.minimum(np.searchsorted(reached, reached[-1] * generator.random(count), side="right"), len(reached) - 1)
    root, along = np.sqrt(generator.random((count, 1))), generator.random((count, 1))
    return corners[face, 0] + root * (1.0 - along) * edge_1[face] + root * along * edge_2[face], face


def point_to_mesh(points: np.ndarray, mesh: trimesh.Trimesh) -> np.ndarray:
    """Distance [P] of points [P, 3] to the nearest point of the triangles of `mesh`, exact."""
    return nearest(points, mesh)[0]


def nearest(points: np.ndarray, mesh: trimesh.Trimesh) -> tuple[np.ndarray, np.ndarray]:
    """The distances of `point_to_mesh`, and the face [P] of each nearest point."""
    vertices = np.ascontiguousarray(mesh.vertices, dtype=np.float64)
    faces = np.ascontiguousarray(mesh.faces, dtype=np.int64)
    squared, face, _ = igl.point_mesh_squared_distance(np.ascontiguousarray(points, dtype=np.float64), vertices, faces)
    return np.sqrt(np.maximum(squared, 0.0)), face
