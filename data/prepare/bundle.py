"""Points and poses by pycolmap from matched features: tasks for `run_apart`. V images, O observations.

The features are undistorted, so that all cameras are pinholes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data.cameras import PIXEL_CENTRE, similarity
from data.parsed_scene import Lens, SparsePoints
from data.prepare.sfm.colmap_tasks import LEAST_ANGLE, SEED, Report
from data.prepare.sfm.joining import places_of
from data.prepare.tracks import ImageFeatures, normalised

# Inlier thresholds of the rounds, in pixels of reprojection error: the given cameras may be far off.
LIMITS = (40.0, 8.0, 2.0)
LOSS_SCALES = (4.0, 1.0, 0.5)  # scales of the Cauchy loss in the same rounds, pixels
SAME_LENS = 1e-3  # relative; above the rounding of float32
ALIGNING_ROUNDS, ALIGNED_SHARE = 5, 0.9  # each round keeps this fraction of the points: wrong ones are far off
Matches = Sequence[tuple[int, int, np.ndarray]]  # two images, and the indices [M, 2] of their features


@dataclass(frozen=True, eq=False)
class Adjusted:
    """The refined cameras and the points, in the frame of the given cameras."""

    c2w: np.ndarray  # [V, 4, 4]
    zoom: np.ndarray  # [V, 2], factors of the focal lengths
    counts: np.ndarray  # int [V], points that each image sees
    points: SparsePoints
    before: float  # median reprojection error with the given cameras, pixels
    after: float  # with the refined ones
    fit: float  # of `_fit`


def adjust(report: Report, seen: Sequence[ImageFeatures], matches: Matches, refines_focal: bool) -> Adjusted:
    """Triangulate and adjust in rounds with decreasing inlier thresholds."""
    import pycolmap

    model, graph = _model(seen, matches)
    focals = {key: np.array(camera.params[:2]) for key, camera in model.cameras.items()}
    options = pycolmap.BundleAdjustmentOptions(
        refine_focal_length=refines_focal, refine_principal_point=False, refine_extra_params=False, print_summary=False
    )
    options.ceres.loss_function_type = pycolmap.LossFunctionType.CAUCHY
    options.ceres.solver_options.num_threads = 1  # the same result on every machine
    start, before = np.zeros((0, 3)), np.nan
    for limit, scale in zip(LIMITS, LOSS_SCALES, strict=True):
        _triangulate(model, graph, limit)
        if not len(start):
            start, before = _places(model), _median_error(model)
        if not model.num_points3D():
            break
        options.ceres.loss_function_scale = scale
        pycolmap.bundle_adjustment(model, options)
    pycolmap.ObservationManager(model).filter_all_points3D(LIMITS[-1], LEAST_ANGLE)
    _align(model, start)
    images = [model.images[key] for key in sorted(model.images)]
    poses = np.array([np.vstack([image.cam_from_world().inverse().matrix(), [0, 0, 0, 1]]) for image in images])
    zoom = np.array([model.cameras[image.camera_id].params[:2] / focals[image.camera_id] for image in images])
    counts = np.array([image.num_points3D for image in images])
    return Adjusted(poses, zoom, counts, _points(model, seen), before, _median_error(model), _fit(model, graph))


def triangulate(report: Report, seen: Sequence[ImageFeatures], matches: Matches) -> tuple[SparsePoints, float, float]:
    """The points of cameras that are kept, their median reprojection error in pixels, and `_fit`."""
    model, graph = _model(seen, matches)
    _triangulate(model, graph, LIMITS[-1])
    return _points(model, seen), _median_error(model), _fit(model, graph)


def locate(report: Report, seen: Sequence[ImageFeatures], matches: Matches) -> tuple[np.ndarray, int]:
    """The pose [4, 4], camera to world, of the last image, and the number of points that agree with it.

    The points are those of the other images, whose cameras are kept.
    """
    import pycolmap

    last = len(seen) - 1
    model, graph = _model(seen, [match for match in matches if last not in match[:2]])
    _triangulate(model, graph, LIMITS[-1])
    places = places_of(model)
    own = [(rows[:, 1], places[str(one)][rows[:, 0]]) for one, other, rows in matches if other == last]
    features = np.concatenate([np.zeros(0, int), *(rows for rows, _ in own)])
    xyz = np.concatenate([np.zeros((0, 3)), *(points for _, points in own)])
    is_placed = np.isfinite(xyz).all(axis=1)
    pixels = np.array([point.xy for point in model.images[last + 1].points2D]).reshape(-1, 2)[features[is_placed]]
    options = pycolmap.AbsolutePoseEstimationOptions()
    options.ransac.max_error, options.ransac.random_seed = LIMITS[-1], SEED
    camera = model.cameras[model.images[last + 1].camera_id]
    estimate = pycolmap.estimate_and_refine_absolute_pose(pixels, xyz[is_placed], camera, options)
    if estimate is None:
        return seen[last].c2w, 0
    return np.vstack([estimate["cam_from_world"].inverse().matrix(), [0, 0, 0, 1]]), int(estimate["num_inliers"])


def _model(seen: Sequence[ImageFeatures], matches: Matches) -> tuple[Any, Any]:
    """A pycolmap model of the images without points, and the graph of their matches; their ids are from 1 on."""
    import pycolmap

    pycolmap.set_random_seed(SEED)
    model, graph = pycolmap.Reconstruction(), pycolmap.CorrespondenceGraph()
    pinholes, lens = _lenses([one.lens for one in seen])
    for key, (focal_x, focal_y, x, y) in enumerate(pinholes, 1):
        size = {"width": max(1, round(2 * x)), "height": max(1, round(2 * y))}
        parameters = [focal_x, focal_y, x + PIXEL_CENTRE, y + PIXEL_CENTRE]
        camera = pycolmap.Camera(camera_id=key, model="PINHOLE", params=parameters, **size)
        model.add_camera_with_trivial_rig(camera)
    for key, (one, own) in enumerate(zip(seen, lens, strict=True), 1):
        focal, centre = np.split(pinholes[own], 2)
        pixels = normalised(one.lens, one.pixels)[:, :2] * focal + centre + PIXEL_CENTRE
        image = pycolmap.Image(name=str(key - 1), keypoints=pixels, camera_id=int(own) + 1, image_id=key)
        model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(np.linalg.inv(one.c2w)[:3]))
        graph.add_image(key, len(pixels))
    for first, second, rows in matches:
        geometry = pycolmap.TwoViewGeometry(inlier_matches=rows.astype(np.uint32))
        graph.add_two_view_geometry(first + 1, second + 1, geometry)
    graph.finalize()
    return model, graph


def _lenses(lenses: Sequence[Lens]) -> tuple[np.ndarray, np.ndarray]:
    """fx, fy, cx, cy of each distinct lens [C, 4], and the index of the lens of each image [V]."""
    distinct: list[np.ndarray] = []
    which = []
    for lens in lenses:
        own = lens.intrinsics[(0, 1, 0, 1), (0, 1, 2, 2)]
        same = (index for index, other in enumerate(distinct) if np.allclose(own, other, rtol=SAME_LENS))
        which.append(next(same, len(distinct)))
        if which[-1] == len(distinct):
            distinct.append(own)
    return np.array(distinct), np.array(which)


def _triangulate(model: Any, graph: Any, limit: float) -> None:
    """Replace the points of a model by those whose reprojection errors are up to `limit` pixels."""
    import pycolmap

    for key in model.point3D_ids():
        model.delete_point3D(key)
    manager = pycolmap.ObservationManager(model, graph)
    triangulator = pycolmap.IncrementalTriangulator(graph, model, manager)
    options = pycolmap.IncrementalTriangulatorOptions(
        min_angle=LEAST_ANGLE, ignore_two_view_tracks=False, random_seed=SEED,
        merge_max_reproj_error=limit, complete_max_reproj_error=limit,
    )  # fmt: skip
    shortest = min(camera.mean_focal_length() for camera in model.cameras.values())
    options.create_max_angle_error = options.continue_max_angle_error = float(np.degrees(np.arctan(limit / shortest)))
    for image in sorted(model.images):
        triangulator.triangulate_image(options, image)
    triangulator.complete_all_tracks(options)
    triangulator.merge_all_tracks(options)
    manager.filter_all_points3D(limit, LEAST_ANGLE)


def _median_error(model: Any) -> float:
    """The median of the points' mean reprojection errors, pixels; NaN without points."""
    model.update_point_3d_errors()
    return float(np.median([point.error for point in model.points3D.values()] or [np.nan]))


def _fit(model: Any, graph: Any) -> float:
    """The share of the matched features that have a point. Wrong cameras fit matches of two images, not of several."""
    count = sum(image.num_points3D for image in model.images.values())
    return count / max(1, sum(graph.num_observations_for_image(key) for key in model.images))


def _points(model: Any, seen: Sequence[ImageFeatures]) -> SparsePoints:
    """The points of a model, with the colours of one of their features."""
    points = list(model.points3D.values())
    tracks = [[(element.image_id - 1, element.point2D_idx) for element in point.track.elements] for point in points]
    colors = [seen[track[0][0]].rgb[track[0][1]] for track in tracks]
    return SparsePoints(
        np.array([point.xyz for point in points]).reshape(-1, 3),
        np.array([len({image for image, _ in track}) for track in tracks], np.int64),
        np.array([point.error for point in points]),
        np.array(colors, np.uint8).reshape(-1, 3),
    )


def _places(model: Any) -> np.ndarray:
    """The point [3] of each feature of all images, NaN without one."""
    return np.concatenate(list(places_of(model).values()))


def _align(model: Any, start: np.ndarray) -> None:
    """Move a model so that its points are where `start`, of `_places`, has them, by a robust similarity."""
    import pycolmap

    places = _places(model)
    rows = np.flatnonzero(np.isfinite(places[:, 0]) & np.isfinite(start[:, 0]))
    if not len(rows):
        return
    for _ in range(ALIGNING_ROUNDS):
        turn, scale, shift = similarity(places[rows], start[rows])
        away = np.linalg.norm(scale * places[rows] @ turn.T + shift - start[rows], axis=1)
        rows = rows[away <= np.quantile(away, ALIGNED_SHARE)]
    model.transform(pycolmap.Sim3d(scale, pycolmap.Rotation3d(turn), shift))
