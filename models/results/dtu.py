"""The published DTU evaluation of a mesh, in millimetres.

It follows the authors' MATLAB program (Jensen et al., Large scale multi-view stereopsis evaluation, CVPR 2014; Aanaes
et al., IJCV 120, 2016), with the steps and constants of the Python program DTUeval-python, which published results use.
That program thins points in a random order; here the seed is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import trimesh
from scipy.spatial import cKDTree

from data.errors import UserError
from data.rays import PinholeCamera
from data.scenes.readers.points import DtuReference
from models.mesh.clean import with_faces, within_masks

DENSITY = 0.2  # mm between the points that replace a mesh
FARTHEST = 20.0  # mm; larger distances are excluded from the means
PATCH = 60.0  # margins in mm around the observed box: below once, above twice, as published
SEED = 0  # of the order of thinning
BATCH = 20_000  # points per neighbour query


@dataclass(frozen=True)
class DtuMetrics:
    """The metrics of the DTU protocol, in millimetres."""

    dtu_scan: int
    dtu_accuracy: float  # from the mesh to the scan
    dtu_completeness: float  # from the scan to the mesh
    dtu_chamfer: float  # their mean, the published metric


def masked(
    mesh: trimesh.Trimesh, cameras: Sequence[PinholeCamera], masks: Sequence[np.ndarray] | None
) -> trimesh.Trimesh:
    """The mesh without what the dilated masks exclude, as published meshes are cleaned."""
    return mesh if masks is None else with_faces(mesh, within_masks(mesh, cameras, masks)[mesh.faces].all(axis=1))


def dtu_metrics(mesh: trimesh.Trimesh, reference: DtuReference, seed: int = SEED) -> DtuMetrics:
    """Both directions for a mesh in the world frame of the scan's cameras.

    Raises UserError if no distance is below FARTHEST: the mesh is in another frame.
    """
    points = thinned(mesh_points(mesh, DENSITY), DENSITY, np.random.default_rng(seed))
    near = ((points >= reference.low - PATCH) & (points < reference.high + 2 * PATCH)).all(axis=1)
    points = points[near]
    cells = np.around((points - reference.low) / reference.cell).astype(np.int64)
    seen = ((cells >= 0) & (cells < reference.observed.shape)).all(axis=1)  # in a cell that the scanner observed
    seen[seen] = reference.observed[tuple(cells[seen].T)]
    above = reference.points @ reference.plane[:3] + reference.plane[3] > 0
    accuracy = _mean_distance(points[seen], reference.points)
    completeness = _mean_distance(reference.points[above], points)
    if accuracy is None or completeness is None:
        raise UserError(
            f"--protocol dtu: no point of the mesh is within {FARTHEST:g} mm of scan {reference.scan} in its "
            "observed part: the world frame of the scene is not that of the scan in millimetres, or --scan is "
            "the number of another scan"
        )
    return DtuMetrics(reference.scan, accuracy, completeness, 0.5 * (accuracy + completeness))


def mesh_points(mesh: trimesh.Trimesh, density: float) -> np.ndarray:
    """Points [P, 3] of a mesh: its vertices, and a lattice on each triangle with spacing `density` or less.

    A triangle with sides l1 and l2 at its first corner and twice the area A has floor(l / (density sqrt(l1 l2 / A)))
    steps along each; a triangle smaller than the density has none. Sorted by triangle.
    """
    vertices = np.asarray(mesh.vertices, np.float64)
    corners = vertices[mesh.faces]
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    lengths = np.stack([np.linalg.norm(first, axis=1), np.linalg.norm(second, axis=1)], axis=1)
    double_area = np.linalg.norm(np.cross(first, second), axis=1)
    flat = double_area <= 0
    step = density * np.sqrt(lengths.prod(axis=1) / np.where(flat, 1.0, double_area))
    counts = np.floor(lengths / np.where(flat, 1.0, step)[:, None]).astype(np.int64)
    counts[flat] = 0
    kinds, kind = np.unique(counts, axis=0, return_inverse=True)
    found, owners = [np.empty((0, 3))], [np.empty(0, np.int64)]
    for index, (along, across) in enumerate(kinds):
        if min(along, across) == 0:
            continue  # without steps along a side, half a step would be outside the triangle
        lattice = _lattice(along, across)
        chosen = np.flatnonzero(kind.reshape(-1) == index)
        sides = np.stack([first[chosen], second[chosen]], axis=1)
        found.append((corners[chosen, 0][:, None] + lattice @ sides).reshape(-1, 3))
        owners.append(np.repeat(chosen, len(lattice)))
    order = np.argsort(np.concatenate(owners), kind="stable")
    return np.concatenate([vertices, np.concatenate(found)[order]])


def _lattice(along: int, across: int) -> np.ndarray:
    """The lattice points [L, 2] of a triangle in fractions of its two sides, half a step from them."""
    places = np.stack(np.meshgrid(np.arange(along + 1), np.arange(across + 1), indexing="ij"), axis=-1) + 0.5
    places = places.reshape(-1, 2) / [along, across]
    return places[places.sum(axis=1) < 1]


def thinned(points: np.ndarray, distance: float, generator: np.random.Generator) -> np.ndarray:
    """The points [P, 3] in random order, without those within `distance` of an earlier one."""
    points = points[generator.permutation(len(points))]
    tree = cKDTree(points)
    stays = np.ones(len(points), bool)
    for start in range(0, len(points), BATCH):
        asked = start + np.flatnonzero(stays[start : start + BATCH])
        for index, near in zip(asked, tree.query_ball_point(points[asked], distance, workers=-1), strict=True):
            if stays[index]:
                stays[near] = False
                stays[index] = True
    return points[stays]


def _mean_distance(points: np.ndarray, others: np.ndarray) -> float | None:
    """The mean of the distances to nearest points that are below FARTHEST; None if there are none."""
    if len(points) == 0 or len(others) == 0:
        return None
    distance = cKDTree(others).query(points, distance_upper_bound=FARTHEST, workers=-1)[0]
    distance = distance[distance < FARTHEST]
    return float(distance.mean()) if len(distance) else None
