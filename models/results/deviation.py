"""The deviation of a mesh from a reference, such as a CAD model: signed distances, coloured mesh, histogram, figures.

Registration is a rigid motion: rotations spread over all are refined by iterative closest points without outliers
(Zhang, Iterative point matching for registration of free-form curves and surfaces, IJCV 13, 1994), the best of them by
distances to tangent planes (Chen and Medioni, Object modelling by registration of multiple range images, Image and
Vision Computing 10, 1992). The scale is never changed. P points.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import igl
import numpy as np
import trimesh
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from data.cameras import affine, similarity
from data.errors import UserError
from data.io.images import write_image
from data.parsed_scene import WorldFrame
from data.pixels import to_uint8
from data.prepare.inspection.overview import FINE, INK, SMALL_TEXT, Canvas
from models.mesh.clean import vertex_normals
from models.mesh.mesh import About, Surface, read_mesh, write_surface
from models.requests import DeviationRequest
from models.results.camera_paths import looking_at_middle
from models.results.metric_tables import write_json
from models.results.render import paint_mesh
from models.results.surface_metrics import moved, point_to_mesh, sample_faces

MAP, PICTURE, FIGURES = OUTPUTS = ("deviation.ply", "deviation.png", "deviation.json")
MOST_RATIO = 3.0  # of the extents of mesh and reference, which may show less
DEFAULT_TOLERANCE = 0.005  # of the extent of the reference
SAMPLES = 100_000  # area-uniform points from which figures are computed
# Registration: rotations that are tried, points for these and for the best ones, and steps.
ROTATIONS, FINALISTS = 200, 5
COARSE_POINTS, FINE_POINTS, COARSE_STEPS, FINE_STEPS = 400, 4000, 12, 25
OUTLIER = 3.0  # median distances from which on a point does not determine a step: its part may be missing there
MOST_APART = 0.05  # median distance after registration, in extents of the reference: beyond, they do not show one shape
BLUE, WHITE, RED = (38, 90, 190), (236, 236, 232), (200, 44, 36)  # inside, on and outside the reference
SIDE, BINS, MARGIN = 420, 60, 40  # pixels of a view; bars of the histogram; pixels around it


@dataclass(frozen=True)
class Deviation:
    """Signed distances of a mesh to a reference, positive outside of it, in `unit`."""

    unit: str  # mm, or units of the scene
    mean: float
    rms: float
    p90: float  # the 90th percentile of the absolute distances
    tolerance: float
    within: float  # fraction of the mesh's area within the tolerance
    covered: float  # fraction of the reference's area within the tolerance of the mesh
    scale_error: float | None  # by which lengths may be off at the extent of the reference, as of the scene

    def lines(self) -> list[str]:
        """The figures in words."""
        error = "" if self.scale_error is None else f"± {self.scale_error:.2g} {self.unit}"
        more = f"; the scale is known to {error} over its extent" if error else ""
        return [
            f"deviation: mean {self.mean:+.3g}, RMS {self.rms:.3g}, 90 % below {self.p90:.3g} {self.unit}{more}",
            f"within ± {self.tolerance:.3g} {self.unit}: {self.within:.1%} of the mesh; the mesh is this near to "
            f"{self.covered:.1%} of the reference",
        ]


def compare(request: DeviationRequest, mesh_file: Path, frame: WorldFrame | None, folder: Path) -> Deviation:
    """Compare the mesh file, in the world frame, with the reference, and write OUTPUTS to `folder`.

    The coloured mesh is in the frame of the reference, in `unit`. Raises UserError for a mesh that is missing or
    unusable, has another size, or does not fit.
    """
    is_metric = frame is not None and frame.is_metric
    reference, mesh = read_mesh(request.reference), read_mesh(mesh_file)
    mesh.apply_scale(1000.0 if is_metric and mesh_file.suffix.lower() != ".stl" else 1.0)
    _fit_unit(request.reference, reference, mesh, is_metric)
    extent = _extent(reference)
    motion = np.eye(4) if request.in_place else registered(mesh, reference)
    mesh.apply_transform(motion)
    samples = sample_faces(mesh, SAMPLES, np.random.default_rng(0))[0]
    signed = signed_distances(np.concatenate([samples, mesh.vertices]), reference)
    distances, of_vertices = np.split(signed, [len(samples)])
    if np.median(np.abs(distances)) > MOST_APART * extent:
        way = "leave --in_place out" if request.in_place else "remove what surrounds the object (--object or --clean)"
        raise UserError(
            f"--compare {request.reference}: half of {mesh_file} is farther from it than {MOST_APART:.0%} of its "
            f"extent, so they are not in one frame, or do not show one object; {way}"
        )
    back = point_to_mesh(sample_faces(reference, SAMPLES, np.random.default_rng(0))[0], mesh)
    tolerance = request.tolerance or DEFAULT_TOLERANCE * extent
    found = Deviation(
        unit="mm" if is_metric else "units of the scene",
        mean=float(distances.mean()),
        rms=float(np.sqrt(np.mean(distances**2))),
        p90=float(np.quantile(np.abs(distances), 0.9)),
        tolerance=tolerance,
        within=float(np.mean(np.abs(distances) <= tolerance)),
        covered=float(np.mean(back <= tolerance)),
        scale_error=None if frame is None or frame.scale_error is None else frame.scale_error * extent,
    )
    limit = 2.0 * tolerance
    colors = _colors(of_vertices / limit)
    about = About("of the reference", found.unit, "as of the reference", 0, str(request.reference))
    write_surface(Surface(mesh, rgb=colors), folder / MAP, about)
    write_image(folder / PICTURE, _picture(mesh, colors, distances, limit, found))
    origin = {"mesh": str(mesh_file), "reference": str(request.reference), "mesh_to_reference": motion.tolist()}
    write_json(folder / FIGURES, asdict(found) | origin)
    return found


def _extent(mesh: trimesh.Trimesh) -> float:
    """The diagonal of the bounding box."""
    return float(np.linalg.norm(mesh.extents))


def _fit_unit(path: Path, reference: trimesh.Trimesh, mesh: trimesh.Trimesh, is_metric: bool) -> None:
    """Scale the reference to millimetres where the scale is known: its unit follows from its extent.

    Raises UserError if the extents differ by more than MOST_RATIO in any unit.
    """
    ratio = _extent(reference) / _extent(mesh)
    units = (1.0, 10.0, 1000.0) if is_metric else (1.0,)  # millimetre, centimetre, metre
    fitting = [unit for unit in units if 1 / MOST_RATIO <= ratio * unit <= MOST_RATIO]
    if not fitting:
        way = "it shows something else, or the scale is wrong"
        if not is_metric:
            way = "the scale of the scene is not known: repeat reconstruct with --marker or --scale"
        raise UserError(f"--compare {path}: its extent is {ratio:.3g} times that of the mesh; {way}")
    reference.apply_scale(fitting[0])


def signed_distances(points: np.ndarray, reference: trimesh.Trimesh) -> np.ndarray:
    """The distances [P] of points [P, 3] to the reference, negative inside.

    The sign is that of the pseudonormal (Baerentzen and Aanaes, IEEE TVCG 11, 2005). A closed reference whose triangles
    face inwards is turned.
    """
    faces = np.ascontiguousarray(reference.faces, np.int64)
    corners = np.ascontiguousarray(reference.vertices, np.float64)
    kind = igl.SignedDistanceType.SIGNED_DISTANCE_TYPE_PSEUDONORMAL
    signed = igl.signed_distance(np.ascontiguousarray(points, np.float64), corners, faces, kind)[0]
    volumes = np.linalg.det(reference.triangles - reference.bounds[0])
    return -signed if reference.is_watertight and volumes.sum() < 0 else signed


def registered(mesh: trimesh.Trimesh, reference: trimesh.Trimesh) -> np.ndarray:
    """The rigid motion [4, 4] that moves the mesh onto the reference."""
    generator = np.random.default_rng(0)
    moving = sample_faces(mesh, FINE_POINTS, generator)[0]
    still, faces = sample_faces(reference, SAMPLES, generator)
    normals, tree = np.asarray(reference.face_normals)[faces], cKDTree(still)
    few, coarse = moving[:COARSE_POINTS], still[:FINE_POINTS]
    rough = cKDTree(coarse)
    turns = [np.eye(3), *Rotation.random(ROTATIONS, random_state=0).as_matrix()]
    starts = [affine(turn, coarse.mean(axis=0) - turn @ few.mean(axis=0)) for turn in turns]
    found = [_closer(start, few, rough, coarse) for start in (np.eye(4), *starts)]
    found.sort(key=lambda motion: _apart(motion, few, rough, coarse))
    finer = [_onto_planes(motion, moving, tree, still, normals) for motion in found[:FINALISTS]]
    return min(finer, key=lambda motion: _apart(motion, moving, tree, still[:FINE_POINTS]))


def _closest(motion: np.ndarray, points: np.ndarray, tree: cKDTree) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The moved points but outliers, the index of the point of the tree next to each, and which of all they are."""
    there = moved(points, motion)
    distances, nearest = tree.query(there)
    kept = distances <= OUTLIER * np.median(distances)
    return there[kept], nearest[kept], kept


def _closer(motion: np.ndarray, points: np.ndarray, tree: cKDTree, still: np.ndarray) -> np.ndarray:
    """The motion after COARSE_STEPS of iterative closest points."""
    for _ in range(COARSE_STEPS):
        _, nearest, kept = _closest(motion, points, tree)
        a, b = points[kept], still[nearest]
        turn = similarity(a, b)[0]
        motion = affine(turn, b.mean(axis=0) - turn @ a.mean(axis=0))
    return motion


def _onto_planes(
    motion: np.ndarray, points: np.ndarray, tree: cKDTree, still: np.ndarray, normals: np.ndarray
) -> np.ndarray:
    """The motion after FINE_STEPS that minimise the distances to tangent planes, linear in a small rotation."""
    for _ in range(FINE_STEPS):
        there, nearest, _ = _closest(motion, points, tree)
        normal, middle = normals[nearest], there.mean(axis=0)
        rows = np.concatenate([np.cross(there - middle, normal), normal], axis=1)
        gaps = np.sum((still[nearest] - there) * normal, axis=1)
        step = np.linalg.lstsq(rows, gaps, rcond=None)[0]
        turn = Rotation.from_rotvec(step[:3]).as_matrix()
        motion = affine(turn, middle + step[3:] - turn @ middle) @ motion
    return motion


def _apart(motion: np.ndarray, points: np.ndarray, tree: cKDTree, still: np.ndarray) -> float:
    """The sum of the mean distances in both directions, of all points: what turns a part may be small."""
    there = moved(points, motion)
    return float(tree.query(there)[0].mean() + cKDTree(there).query(still)[0].mean())


def _colors(shares: np.ndarray) -> np.ndarray:
    """uint8 [P, 3] of distances [P] relative to the largest shown: blue inside, white on, red outside the reference."""
    stops = np.array([BLUE, WHITE, RED], float)
    places = np.clip(shares, -1, 1) + 1
    return np.stack([np.interp(places, range(3), channel) for channel in stops.T], axis=1).round().astype(np.uint8)


def _picture(
    mesh: trimesh.Trimesh, colors: np.ndarray, distances: np.ndarray, limit: float, found: Deviation
) -> np.ndarray:
    """The coloured mesh from two opposite sides, beside the histogram of distances: uint8 [SIDE, 3 SIDE, 3]."""
    middle, size = mesh.bounds.mean(axis=0), _extent(mesh)
    intrinsics = np.array([[1.8 * SIDE, 0, SIDE / 2], [0, 1.8 * SIDE, SIDE / 2], [0, 0, 1]])
    normals, views = vertex_normals(mesh), []
    for side in (1.0, -1.0):
        back = np.array([0.5 * side, -0.8 * side, 0.35])
        pose = looking_at_middle(1.9 * size * back / np.linalg.norm(back), np.array([0.0, 0.0, 1.0]))
        pose[:3, 3] += middle
        light = 0.45 + 0.55 * np.abs(normals @ pose[:3, 2])
        shaded = np.rint(colors * light[:, None]).astype(np.uint8)
        views.append(to_uint8(paint_mesh(mesh, shaded, intrinsics, pose, SIDE, SIDE)))
    return np.concatenate([*views, _histogram(distances, limit, found)], axis=1)


def _histogram(distances: np.ndarray, limit: float, found: Deviation) -> np.ndarray:
    """Bars of the distances from -`limit` to `limit` in their colours, with the tolerance: uint8 [SIDE, SIDE, 3]."""
    canvas, width, floor = Canvas(SIDE, SIDE), (SIDE - 2 * MARGIN) / BINS, SIDE - MARGIN
    counts, edges = np.histogram(np.clip(distances, -limit, limit), BINS, (-limit, limit))
    colors = _colors(0.5 * (edges[:-1] + edges[1:]) / limit)
    heights = counts / counts.max() * (SIDE - 5 * MARGIN)
    for number, (height, color) in enumerate(zip(heights, colors, strict=True)):
        x = MARGIN + (number + 0.5) * width
        canvas.line([(x, floor), (x, floor - height)], tuple(color.tolist()), round((width - 1) * FINE))
    marks = {-limit: f"{-limit:.3g}", -found.tolerance: "tolerance", 0.0: "0", found.tolerance: "tolerance"}
    for mark, word in (marks | {limit: f"{limit:.3g}"}).items():
        x = MARGIN + (mark / limit + 1) / 2 * (SIDE - 2 * MARGIN)
        canvas.line([(x, floor), (x, 4 * MARGIN if word == "tolerance" else floor + 5)], INK, 2)
        canvas.text(word, (x - 12, floor + 20), SMALL_TEXT, INK)
    rows = (
        f"deviation in {found.unit}: blue inside, red outside",
        f"mean {found.mean:+.3g}   RMS {found.rms:.3g}   90 % {found.p90:.3g}",
        f"{found.within:.1%} within ± {found.tolerance:.3g}",
    )
    for number, words in enumerate(rows):
        canvas.text(words, (MARGIN, 30 + 24 * number), SMALL_TEXT, INK)
    return canvas.image()
