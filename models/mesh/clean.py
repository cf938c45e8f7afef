"""Clean a mesh: remove unseen faces and the ground; decimate. models/mesh/pieces.py removes components.

The ground is a plane on whose one side are the object and the cameras. Working frame; P points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import trimesh
from scipy.spatial import cKDTree

from data.errors import UserError
from data.io.bars import progress
from data.parsed_scene import MASK_HALF
from data.prepare.world import fitted_plane, largest_plane
from data.rays import PinholeCamera
from models.mesh.mesh import Surface
from models.mesh.visibility import Visibility, lengths

# Masks are dilated by 50 pixels of a DTU photograph, 1600 wide (as published for NeuS without masks); for other sizes
# by the same fraction of the width.
DILATION = 50 / 1600
MOST_DECIMATED = 4_000_000  # decimation of more triangles takes too long during a training
FACES_AT_ONCE = 2**18  # faces processed at a time


def face_areas(mesh: trimesh.Trimesh) -> np.ndarray:
    """The area of each face, [F]."""
    return 0.5 * np.concatenate([np.zeros(0), *(lengths(normal) for _, normal in normals_of(mesh))])


def normals_of(mesh: trimesh.Trimesh) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Faces [K, 3], FACES_AT_ONCE at a time, with their normals [K, 3], of twice the length of the areas."""
    vertices = np.asarray(mesh.vertices)
    for start in range(0, len(mesh.faces), FACES_AT_ONCE):
        faces = mesh.faces[start : start + FACES_AT_ONCE]
        corners = vertices[faces]
        yield faces, np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])


def with_faces(mesh: trimesh.Trimesh, stays: np.ndarray) -> trimesh.Trimesh:
    """The mesh of these faces (bool [F]) and their vertices."""
    faces = mesh.faces[stays]
    used = np.zeros(len(mesh.vertices), bool)
    used[faces] = True
    return trimesh.Trimesh(mesh.vertices[used], (np.cumsum(used) - 1)[faces], process=False)


def as_seen(mesh: trimesh.Trimesh, cameras: Sequence[PinholeCamera], visibility: Visibility) -> trimesh.Trimesh:
    """Remove faces without a visible vertex. The result may have no faces."""
    vertices, normals = np.asarray(mesh.vertices), vertex_normals(mesh)
    seen = np.zeros(len(vertices), bool)
    for camera in progress(cameras, "visibility"):
        unseen = np.flatnonzero(~seen)
        asked = unseen[camera.shows(*camera.project(vertices[unseen]))]
        seen[asked] = visibility.sees(vertices[asked], normals[asked], camera.center)
    return with_faces(mesh, seen[mesh.faces].any(axis=1))


def inside_masks(
    mesh: trimesh.Trimesh, cameras: Sequence[PinholeCamera], masks: Sequence[np.ndarray]
) -> trimesh.Trimesh:
    """Remove faces with a vertex outside the dilated mask, uint8 [H, W], of a camera. The result may have no faces.

    Points outside an image are not outside its mask.
    """
    return with_faces(mesh, within_masks(mesh, cameras, masks)[mesh.faces].all(axis=1))


def within_masks(mesh: trimesh.Trimesh, cameras: Sequence[PinholeCamera], masks: Sequence[np.ndarray]) -> np.ndarray:
    """Whether each vertex is inside the dilated mask of every image that contains its projection: bool [V]."""
    vertices = np.asarray(mesh.vertices)
    within = np.ones(len(vertices), bool)
    for camera, mask in zip(cameras, masks, strict=True):
        pixels, depth = camera.project(vertices)
        shown = camera.shows(pixels, depth)
        places = np.rint(pixels[shown]).astype(int)
        radius = max(1, round(DILATION * mask.shape[1]))
        kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1,) * 2)
        dilated = cv2.dilate((mask > MASK_HALF).astype(np.uint8), kernel).astype(bool)
        within[shown] &= dilated[places[:, 1], places[:, 0]]
    return within


def decimated(mesh: trimesh.Trimesh, faces: int) -> trimesh.Trimesh:
    """Reduce to about this number of triangles by quadric errors (fast-simplification)."""
    if len(mesh.faces) <= faces:
        return mesh
    import fast_simplification  # imported only here

    vertices, triangles = fast_simplification.simplify(
        np.asarray(mesh.vertices, np.float32), np.asarray(mesh.faces, np.int32), target_count=faces
    )
    return trimesh.Trimesh(vertices.astype(np.float64), triangles.astype(np.int64), process=False)


def thinned(surface: Surface, faces: int) -> tuple[trimesh.Trimesh, np.ndarray | None]:
    """Reduce to about `faces` triangles, with colours uint8 [V, 3], if there are any. Raises UserError for a too
    large mesh.
    """
    mesh, rgb, count = surface.mesh, surface.rgb, len(surface.mesh.faces)
    if count > MOST_DECIMATED:
        raise UserError(
            f"the mesh has {count} triangles, more than the {MOST_DECIMATED} that can be decimated for a page: "
            "lower train.mesh_resolution or --resolution, or open the mesh file"
        )
    thin = decimated(mesh, faces)
    if rgb is not None and thin is not mesh:
        rgb = rgb[cKDTree(np.asarray(mesh.vertices)).query(np.asarray(thin.vertices))[1]]
    return thin, None if rgb is None else np.asarray(rgb, np.uint8)


def is_watertight(mesh: trimesh.Trimesh) -> bool:
    """Whether every edge belongs to exactly two triangles, in opposite directions."""
    count, faces = len(mesh.vertices), mesh.faces
    if len(faces) == 0 or len(faces) % 2:
        return False
    edges = np.empty(3 * len(faces), np.int64)  # one number per edge: its vertices without order, then the direction
    for index, (a, b) in enumerate(((0, 1), (1, 2), (2, 0))):
        begin, end = faces[:, a], faces[:, b]
        part = edges[index * len(faces) : (index + 1) * len(faces)]
        part[:] = 2 * (np.minimum(begin, end) * count + np.maximum(begin, end)) + (begin > end)
    edges.sort()
    forth, back = edges[::2], edges[1::2]
    return bool((forth % 2 == 0).all() and (back == forth + 1).all() and (np.diff(forth) > 0).all())


def vertex_normals(mesh: trimesh.Trimesh) -> np.ndarray:
    """Unit normals [V, 3] of the vertices, weighted by triangle areas; handles tens of millions of vertices."""
    total = np.zeros((len(mesh.vertices), 3))
    for faces, normal in normals_of(mesh):
        for axis in range(3):
            total[:, axis] += np.bincount(faces.reshape(-1), np.repeat(normal[:, axis], 3), len(total))
    return total / np.maximum(lengths(total), np.finfo(float).tiny)[:, None]


THICK = 0.03  # radii from the plane within which a point, or a face that is parallel to it, is on the ground
LEAST_GROUND = 0.1  # of the points; a smaller plane is not taken for the ground
MOST_BELOW, LEAST_ABOVE = 0.03, 0.9  # fractions of the points below the ground, of the cameras above it
STEEPEST_GROUND = np.cos(np.radians(30.0))  # of a face of the ground, from its plane
GROUND_PLANES = 5  # that are tried, the largest first: a box may have a larger side than its ground
GROUND_SAMPLES = 20_000  # area-uniform faces in which the ground is searched
ROUGH = 3.0  # median distances from the plane that the unevenness of the ground reaches


@dataclass(frozen=True)
class Ground:
    """A plane."""

    place: np.ndarray  # [3], a point of it
    normal: np.ndarray  # [3], unit, towards the cameras
    rough: float  # radii, how far its own faces are from it

    def height(self, points: np.ndarray) -> np.ndarray:
        """The signed distances [P] of points [P, 3], positive on the side of the cameras."""
        return (points - self.place) @ self.normal


def find_ground(points: np.ndarray, centers: np.ndarray) -> Ground | None:
    """The ground under points [P, 3] of surfaces, seen from cameras with centres [C, 3]; None if there is none."""
    rest = points
    for _ in range(GROUND_PLANES):
        near = largest_plane(rest, THICK)
        if near.sum() < max(3, LEAST_GROUND * len(points)):
            return None
        place, normal = fitted_plane(rest[near])
        normal = normal * (np.sign(np.median((centers - place) @ normal)) or 1.0)
        ground = Ground(place, normal, ROUGH * float(np.median(np.abs((rest[near] - place) @ normal))))
        is_below = np.mean(ground.height(points) < -THICK) > MOST_BELOW
        if not is_below and np.mean(ground.height(centers) > THICK) >= LEAST_ABOVE:
            return ground
        rest = rest[~near]
    return None


def without_ground(mesh: trimesh.Trimesh, centers: np.ndarray) -> trimesh.Trimesh | None:
    """The faces above the ground, seen from camera centres [C, 3]; None if there is no ground, or nothing on it."""
    areas, middles = face_areas(mesh), np.asarray(mesh.triangles_center)
    drawn = np.random.default_rng(0).choice(len(areas), GROUND_SAMPLES, p=areas / areas.sum())
    ground = find_ground(middles[drawn], centers)
    if ground is None:
        return None
    is_parallel = np.asarray(mesh.face_normals) @ ground.normal > STEEPEST_GROUND
    stays = ground.height(middles) > np.where(is_parallel, THICK, min(ground.rough, THICK))
    return with_faces(mesh, stays) if stays.any() else None
