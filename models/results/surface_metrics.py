"""Distances of a surface to ground truth and to held-out SfM points, in radii of the unit sphere (working frame).

Also: ground truth from a file, triangles or points, and whether it is in the frame of the scene, by its position and
its distance from the surface; area-uniform points of meshes; the published DTU evaluation, in millimetres. P points.

The DTU evaluation follows the authors' MATLAB program (Jensen et al., Large scale multi-view stereopsis evaluation,
CVPR 2014; Aanaes et al., IJCV 120, 2016), with the steps and constants of the Python program DTUeval-python, which
published results use. That program thins points in a random order; here the seed is fixed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import igl
import numpy as np
import trimesh
from scipy.spatial import cKDTree

from data.errors import UserError
from data.io.files import is_file, read_regular
from data.parsed_scene import MASK_HALF, SparsePoints
from data.rays import PinholeCamera
from data.scenes.readers.points import DtuReference, read_points
from data.scenes.sparse import well_supported
from models.mesh.clean import face_areas, with_faces, within_masks
from models.mesh.mesh import MESH_HEAD_BYTES, has_area, read_mesh

LEAST_SURFACE_POINTS = 100  # fewer points are not taken for a surface
MOST_TRUTH_POINTS = 1_000_000  # random points from which distances are measured; distances to the cloud use all points


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
            return sample_faces(mesh, count, generator)[0]
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
        if len(cloud.xyz) < LEAST_SURFACE_POINTS:
            raise UserError(
                f"{path}: contains {len(cloud.xyz)} points and no triangles, too few to show a surface; give a mesh "
                f"or at least {LEAST_SURFACE_POINTS} points"
            )
        return GroundTruth(source, moved(cloud.xyz, to_working), None)
    mesh = read_mesh(path)
    truth = GroundTruth(source, moved(np.asarray(mesh.vertices, np.float64), to_working), np.asarray(mesh.faces))
    # It may be so small that it degenerates in float64 at its position.
    if (triangles := truth.mesh) is None or not has_area(triangles):
        raise UserError(
            f"{path}: its triangles have no area in the frame of the scene; give the mesh in the units of the scene"
        )
    return truth


def _is_points(path: Path) -> bool:
    """Whether the file is a PLY without faces in its header."""
    try:
        if path.suffix.lower() != ".ply" or not is_file(path):
            return False
        header = read_regular(path, MESH_HEAD_BYTES).partition(b"end_header")[0]
    except OSError:
        return False  # the error is reported when it is read as a mesh
    faces = re.search(rb"element\s+(?:face|tristrips)\s+(\d{1,18})\s", header)
    return header.startswith(b"ply") and (faces is None or int(faces[1]) == 0)


def moved(points: np.ndarray, matrix: np.ndarray | None) -> np.ndarray:
    """Transform points [N, 3] by a matrix [4, 4]; None for the identity."""
    return points if matrix is None else points @ matrix[:3, :3].T + matrix[:3, 3]


LEAST_INSIDE = 0.05  # smallest fraction of the ground truth inside the region of interest
SMALLEST_EXTENT = 0.03  # in radii of the region
MOST_EXTENT = 3.0  # a larger extent is a wrong scale rather than an offset
EXTENT_QUANTILE = 0.9  # quantile of the distances from the centre, which ignores a few far points
TOUCHING = 1.05  # radii; a surface may touch the sphere
LEAST_FRAME_POINTS = 100  # with fewer, distances do not identify a frame
SAME_FRAME = 0.05  # fraction of the extent below which a distance counts as the same frame
BETTER_FRAME = 0.3  # factor on the distance that the other frame must achieve
FRAME_SAMPLES = 20_000  # largest number of points of each surface: their spacing is far below SAME_FRAME


def require_in_region(points: np.ndarray, source: str, frames: str) -> None:
    """Raises UserError if points [N, 3] are outside the region of interest, or have another size.

    source: the start of the message; frames: the advice at its end.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers so large that the sum overflows
        middle, reach = _place(points)
        inside = float(np.mean(np.linalg.norm(points, axis=1) <= TOUCHING))
        off = float(np.linalg.norm(middle))
    if inside >= LEAST_INSIDE and (reach >= SMALLEST_EXTENT or len(points) < LEAST_FRAME_POINTS):
        return
    difference = f"its centre is {off:.3g} radii from the centre of the region of interest"
    if reach > MOST_EXTENT or reach < SMALLEST_EXTENT:
        difference = (
            f"it extends {reach:.3g} radii from the centre of the region of interest, the object should extend 0.2 to 1"
        )
    raise UserError(f"{source}: has another frame or scale than the scene: {difference}; {frames}")


def frame_note(surface: np.ndarray, given: np.ndarray, otherwise: np.ndarray, source: str, frames: str) -> str:
    """A note on ground truth [N, 3] that is far from the surface's points [P, 3]; "" if it is near.

    otherwise: the same ground truth, read in the other frame of `--frame`, [N, 3]. Raises UserError if it fits there.
    source: the start of the message; frames: the advice at its end.
    """
    own = _apart(surface, given)
    if own <= SAME_FRAME * _place(given)[1] or len(given) < LEAST_FRAME_POINTS:
        return ""
    apart = _apart(surface, otherwise)
    if apart <= min(BETTER_FRAME * own, SAME_FRAME * _place(otherwise)[1]):
        raise UserError(
            f"{source}: has another frame or scale than the scene: read in the other frame, it is {own / apart:.0f} "
            f"times closer to the surface; {frames}"
        )
    return f"{source}: is {own:.2g} radii from the surface, which is unfinished, or has another frame: {frames}"


def _place(points: np.ndarray) -> tuple[np.ndarray, float]:
    """The centre [3] and the extent of points."""
    middle = np.median(points, axis=0)
    return middle, float(np.quantile(np.linalg.norm(points - middle, axis=1), EXTENT_QUANTILE))


def _apart(surface: np.ndarray, given: np.ndarray) -> float:
    """The mean of both median distances to nearest points."""
    return 0.5 * float(np.median(cKDTree(surface).query(given)[0]) + np.median(cKDTree(given).query(surface)[0]))


def sample_faces(mesh: trimesh.Trimesh, count: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points [count, 3] uniform by area on `mesh`, and the face [count] of each; raises ValueError without area."""
    if not face_areas(mesh).sum() > 0.0:
        raise ValueError("the mesh has no area to sample")
    return trimesh.sample.sample_surface(mesh, count, seed=int(generator.integers(1 << 31)))


def point_to_mesh(points: np.ndarray, mesh: trimesh.Trimesh) -> np.ndarray:
    """Distance [P] of points [P, 3] to the nearest point of the triangles of `mesh`, exact."""
    return nearest(points, mesh)[0]


def nearest(points: np.ndarray, mesh: trimesh.Trimesh) -> tuple[np.ndarray, np.ndarray]:
    """The distances of `point_to_mesh`, and the face [P] of each nearest point."""
    vertices = np.ascontiguousarray(mesh.vertices, dtype=np.float64)
    faces = np.ascontiguousarray(mesh.faces, dtype=np.int64)
    squared, face, _ = igl.point_mesh_squared_distance(np.ascontiguousarray(points, dtype=np.float64), vertices, faces)
    return np.sqrt(np.maximum(squared, 0.0)), face


METRIC_SAMPLES = 100_000  # per direction; the mean of this many distances is accurate to about 0.3 % of their spread
# Default of --tau: a hundredth of the sphere's radius. It is two and a half cells of a 512^3 grid, above the extraction
# error, and equals the threshold for missing SfM points.
TAU = 0.01


@dataclass(frozen=True)
class SurfaceMetrics:
    """The distance of a surface and its ground truth; lengths in radii."""

    accuracy: float  # mean distance from the surface to the ground truth: superfluous or misplaced geometry
    completeness: float  # mean distance from the ground truth to the surface: missing geometry
    chamfer: float  # the mean of the two
    tau: float
    precision: float  # fraction of the surface within tau of the ground truth
    recall: float  # fraction of the ground truth within tau of the surface
    f_score: float  # their harmonic mean (Knapitsch et al., Tanks and Temples, ACM TOG 36, 2017)
    # Mean |cosine| of the normals of sampled points and nearest triangles, over both directions (Mescheder et al.,
    # Occupancy networks, CVPR 2019); None if the ground truth has no triangles.
    normal_consistency: float | None


@dataclass(frozen=True, eq=False)
class Pairs:
    """Points of one surface, each with the nearest point of the other."""

    distances: np.ndarray  # [S]
    # Of the normals of the two triangles, [S] or fewer: degenerate triangles are omitted. None without triangles.
    cosines: np.ndarray | None


def against_truth(
    mesh: trimesh.Trimesh, truth: GroundTruth, tau: float = TAU, samples: int = METRIC_SAMPLES, seed: int = 0
) -> SurfaceMetrics:
    """Both directions: `samples` area-uniform points of one surface to the nearest point on the other's triangles.

    For a point cloud, all points (at most MOST_TRUTH_POINTS) are used, and distances to it are those to the nearest
    point. Equal seeds give equal metrics. Raises ValueError for a mesh without area.
    """
    generator = np.random.default_rng(seed)
    other = truth.mesh
    if other is not None:
        return figures(_one_way(mesh, other, samples, generator), _one_way(other, mesh, samples, generator), tau)
    points, _ = sample_faces(mesh, samples, generator)
    forth = cKDTree(truth.points).query(points)[0]
    back = point_to_mesh(truth.spread(MOST_TRUTH_POINTS, generator), mesh)
    return figures(Pairs(forth, None), Pairs(back, None), tau)


def figures(forth: Pairs, back: Pairs, tau: float) -> SurfaceMetrics:
    """The metrics from the distances of both directions."""
    accuracy, completeness = float(forth.distances.mean()), float(back.distances.mean())
    precision, recall = float(np.mean(forth.distances <= tau)), float(np.mean(back.distances <= tau))
    cosines = [pairs.cosines for pairs in (forth, back) if pairs.cosines is not None]
    return SurfaceMetrics(
        accuracy=accuracy,
        completeness=completeness,
        chamfer=0.5 * (accuracy + completeness),
        tau=tau,
        precision=precision,
        recall=recall,
        f_score=2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0,
        normal_consistency=float(np.mean([np.abs(part).mean() for part in cosines])) if cosines else None,
    )


def _one_way(mesh: trimesh.Trimesh, other: trimesh.Trimesh, samples: int, generator: np.random.Generator) -> Pairs:
    """From `samples` area-uniform points of `mesh` to `other`."""
    points, faces = sample_faces(mesh, samples, generator)
    distances, there = nearest(points, other)
    first, second = _normals(mesh, faces), _normals(other, there)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    has_area = lengths > 0
    return Pairs(distances, np.sum(first * second, axis=1)[has_area] / lengths[has_area])


def _normals(mesh: trimesh.Trimesh, faces: np.ndarray) -> np.ndarray:
    """Normals [P, 3] of triangles, of twice the length of their areas."""
    corners = np.asarray(mesh.vertices, np.float64)[np.asarray(mesh.faces)[faces]]
    return np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])


MISSING_DISTANCE = 0.01  # radii: larger distances count as missing; as TAU
MOST_SCORED = 20_000  # largest number of measured points, randomly selected: quantiles are accurate to a per cent
IN_MASKS = 0.9  # fraction of the photographs that must show a point inside the mask: one mask may be wrong
DUPLICATE = 1e-4  # radii: closer points are duplicates, because files contain float32


@dataclass(frozen=True, eq=False)
class HeldOutPoints:
    """Points on the object."""

    source: str  # file or scene, for messages
    xyz: np.ndarray  # [P, 3]
    pixels: np.ndarray  # [P], pixels per radius at the point, median over the photographs
    given: int  # number of given points


@dataclass(frozen=True)
class PointMetrics:
    """Distances of points to the nearest point on the triangles of the surface."""

    points_from: str
    points_given: int
    points_scored: int
    points_median: float  # radii
    points_p90: float  # radii, the 90th percentile
    points_median_px: float  # pixels: the projected distance, parallel to the image plane
    points_p90_px: float
    points_missing: float  # fraction of the points farther than MISSING_DISTANCE from the surface


def held_out_points(
    points: SparsePoints, source: str, cameras: Sequence[PinholeCamera], masks: Sequence[np.ndarray] | None
) -> HeldOutPoints:
    """Points in the unit sphere that are well supported and visible in a photograph; may be empty.

    masks: uint8 [H, W] of each camera, if they define the object; else None.
    """
    given = len(points.xyz)
    xyz = well_supported(points)
    xyz = xyz[np.linalg.norm(xyz, axis=1) <= 1.0]
    if len(xyz) > MOST_SCORED:
        xyz = np.random.default_rng(0).choice(xyz, MOST_SCORED, replace=False)
    scale = np.full((len(cameras), len(xyz)), np.nan, np.float32)
    inside = np.zeros(len(xyz), int)
    for index, camera in enumerate(cameras):
        pixels, depth = camera.project(xyz)
        visible = camera.shows(pixels, depth)
        scale[index, visible] = np.sqrt(abs(np.linalg.det(camera.intrinsics[:2, :2]))) / depth[visible]
        if masks is not None:
            x, y = np.rint(pixels[visible]).astype(int).T
            dilated = cv2.dilate(masks[index], np.ones((3, 3), np.uint8))  # by a pixel, for points on the outline
            inside[visible] += dilated[y, x] > MASK_HALF
    views = np.isfinite(scale).sum(axis=0)
    usable = views > 0
    if masks is not None:
        usable &= inside >= IN_MASKS * views
    return HeldOutPoints(source, xyz[usable], np.nanmedian(scale[:, usable], axis=0).astype(np.float64), given)


def others(points: SparsePoints, trained_on: SparsePoints | None) -> SparsePoints:
    """The points that were not used in training; all points if none were used."""
    if trained_on is None or len(trained_on.xyz) == 0:
        return points

    return points.at(cKDTree(trained_on.xyz).query(points.xyz)[0] > DUPLICATE)


def point_metrics(held_out: HeldOutPoints, mesh: trimesh.Trimesh) -> PointMetrics | None:
    """The distances of the points to the surface; None without points."""
    if len(held_out.xyz) == 0:
        return None
    distance = point_to_mesh(held_out.xyz, mesh)
    pixels = distance * held_out.pixels
    return PointMetrics(
        points_from=held_out.source,
        points_given=held_out.given,
        points_scored=len(distance),
        points_median=float(np.median(distance)),
        points_p90=float(np.quantile(distance, 0.9)),
        points_median_px=float(np.median(pixels)),
        points_p90_px=float(np.quantile(pixels, 0.9)),
        points_missing=float(np.mean(distance > MISSING_DISTANCE)),
    )


DENSITY = 0.2  # mm between the points that replace a mesh
FARTHEST_MM = 20.0  # larger distances are excluded from the means
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

    Raises UserError if no distance is below FARTHEST_MM: the mesh is in another frame.
    """
    points = thinned(mesh_points(mesh, DENSITY), DENSITY, np.random.default_rng(seed))
    near = ((points >= reference.low - PATCH) & (points < reference.high + 2 * PATCH)).all(axis=1)
    points = points[near]
    cells = np.around((points - reference.low) / reference.cell).astype(np.int64)
    observed = ((cells >= 0) & (cells < reference.observed.shape)).all(axis=1)  # in a cell that the scanner observed
    observed[observed] = reference.observed[tuple(cells[observed].T)]
    above = reference.points @ reference.plane[:3] + reference.plane[3] > 0
    accuracy = _mean_distance(points[observed], reference.points)
    completeness = _mean_distance(reference.points[above], points)
    if accuracy is None or completeness is None:
        raise UserError(
            f"--protocol dtu: no point of the mesh is within {FARTHEST_MM:g} mm of scan {reference.scan} in its "
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
    points, owners = [np.empty((0, 3))], [np.empty(0, np.int64)]
    for index, (along, across) in enumerate(kinds):
        if min(along, across) == 0:
            continue  # without steps along a side, half a step would be outside the triangle
        # The lattice points [L, 2] in fractions of the two sides, half a step from them.
        lattice = np.stack(np.meshgrid(np.arange(along + 1), np.arange(across + 1), indexing="ij"), axis=-1) + 0.5
        lattice = lattice.reshape(-1, 2) / [along, across]
        lattice = lattice[lattice.sum(axis=1) < 1]
        chosen = np.flatnonzero(kind.reshape(-1) == index)
        sides = np.stack([first[chosen], second[chosen]], axis=1)
        points.append((corners[chosen, 0][:, None] + lattice @ sides).reshape(-1, 3))
        owners.append(np.repeat(chosen, len(lattice)))
    order = np.argsort(np.concatenate(owners), kind="stable")
    return np.concatenate([vertices, np.concatenate(points)[order]])


def thinned(points: np.ndarray, distance: float, generator: np.random.Generator) -> np.ndarray:
    """The points [P, 3] in random order, without those within `distance` of an earlier one."""
    points = points[generator.permutation(len(points))]
    tree = cKDTree(points)
    stays = np.ones(len(points), bool)
    for start in range(0, len(points), BATCH):
        batch = start + np.flatnonzero(stays[start : start + BATCH])
        for index, near in zip(batch, tree.query_ball_point(points[batch], distance, workers=-1), strict=True):
            if stays[index]:
                stays[near] = False
                stays[index] = True
    return points[stays]


def _mean_distance(points: np.ndarray, others: np.ndarray) -> float | None:
    """The mean of the distances to nearest points that are below FARTHEST_MM; None if there are none."""
    if len(points) == 0 or len(others) == 0:
        return None
    distance = cKDTree(others).query(points, distance_upper_bound=FARTHEST_MM, workers=-1)[0]
    distance = distance[distance < FARTHEST_MM]
    return float(distance.mean()) if len(distance) else None
