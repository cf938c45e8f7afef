"""The ground under an object: a plane on whose one side are the object and the cameras. Working frame; P points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import trimesh

from data.prepare.world import fitted_plane, largest_plane
from models.surface.clean import face_areas, with_faces

THICK = 0.03  # radii from the plane within which a point, or a face that is parallel to it, is on the ground
LEAST_SHARE = 0.1  # of the points; a smaller plane is not taken for the ground
MOST_BELOW, LEAST_ABOVE = 0.03, 0.9  # fractions of the points below the ground, of the cameras above it
STEEPEST = np.cos(np.radians(30.0))  # of a face of the ground, from its plane
PLANES = 5  # that are tried, the largest first: a box may have a larger side than its ground
SAMPLES = 20_000  # area-uniform faces in which the ground is searched
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
    for _ in range(PLANES):
        near = largest_plane(rest, THICK)
        if near.sum() < max(3, LEAST_SHARE * len(points)):
            return None
        place, normal = fitted_plane(rest[near])
        normal = normal * (np.sign(np.median((centers - place) @ normal)) or 1.0)
        found = Ground(place, normal, ROUGH * float(np.median(np.abs((rest[near] - place) @ normal))))
        is_below = np.mean(found.height(points) < -THICK) > MOST_BELOW
        if not is_below and np.mean(found.height(centers) > THICK) >= LEAST_ABOVE:
            return found
        rest = rest[~near]
    return None


def without_ground(mesh: trimesh.Trimesh, centers: np.ndarray) -> trimesh.Trimesh | None:
    """The faces above the ground, seen from camera centres [C, 3]; None if there is no ground, or nothing on it."""
    areas, middles = face_areas(mesh), np.asarray(mesh.triangles_center)
    drawn = np.random.default_rng(0).choice(len(areas), SAMPLES, p=areas / areas.sum())
    ground = find_ground(middles[drawn], centers)
    if ground is None:
        return None
    is_parallel = np.asarray(mesh.face_normals) @ ground.normal > STEEPEST
    stays = ground.height(middles) > np.where(is_parallel, THICK, min(ground.rough, THICK))
    return with_faces(mesh, stays) if stays.any() else None
