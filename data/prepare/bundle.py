"""Bundle adjustment by pycolmap, a task for `run_apart`, and poses by given points. V views, N tracks, O observations.

Poses are world to camera. Pixels and intrinsics are those of undistorted pinhole images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from data.cameras import PIXEL_CENTRE

SEED = 0
# Inlier thresholds of the rounds, in pixels of reprojection error: the given cameras may be far off.
LIMITS = (40.0, 8.0, 2.0)
LOSS_SCALES = (4.0, 1.0, 0.5)  # scales of the Cauchy loss in the same rounds, pixels
LEAST_ANGLE = np.deg2rad(1.5)  # triangulation angle of a track
LEAST_VIEWS = 2  # of a track
LEAST_POINTS = 6  # for a pose: twice the minimal set


@dataclass(frozen=True, eq=False)
class Bundle:
    """Cameras and their observations of the tracks."""

    w2c: np.ndarray  # [V, 3, 4]
    pinholes: np.ndarray  # [C, 4], fx, fy, cx, cy of each lens
    lens: np.ndarray  # int [V], index of the lens of each view
    view: np.ndarray  # int [O]
    track: np.ndarray  # int [O], 0 to N - 1
    pixels: np.ndarray  # [O, 2]


@dataclass(frozen=True, eq=False)
class Adjusted:
    """The refined cameras and the triangulated tracks."""

    w2c: np.ndarray  # [V, 3, 4]
    pinholes: np.ndarray  # [C, 4]
    xyz: np.ndarray  # [N, 3]; NaN for a track that was left out
    start: np.ndarray  # [N, 3], triangulated with the given cameras
    kept: np.ndarray  # bool [O], inliers of the last round
    before: float  # median reprojection error of the inliers with the given cameras, pixels
    error: np.ndarray  # [O], with the refined cameras, pixels; NaN if the track was left out


def adjust(report: Callable[[Any], None], bundle: Bundle, refines_focal: bool) -> Adjusted:
    """Triangulate and adjust in rounds with decreasing inlier thresholds."""
    w2c, pinholes = bundle.w2c, bundle.pinholes
    for limit, scale in zip(LIMITS, LOSS_SCALES, strict=True):
        xyz = triangulate(bundle, w2c, pinholes)
        kept = consistent(bundle, errors(bundle, w2c, pinholes, xyz), limit)
        w2c, pinholes, xyz = _adjusted(bundle, w2c, pinholes, xyz, kept, scale, refines_focal)
    error = errors(bundle, w2c, pinholes, xyz)
    start = triangulate(bundle, bundle.w2c, bundle.pinholes)
    before = errors(bundle, bundle.w2c, bundle.pinholes, start)[kept]
    return Adjusted(w2c, pinholes, xyz, start, kept & (error <= LIMITS[-1]), float(np.nanmedian(before)), error)


def triangulate(bundle: Bundle, w2c: np.ndarray, pinholes: np.ndarray) -> np.ndarray:
    """The points [N, 3] nearest to the rays of each track, by least squares; NaN if the rays are parallel."""
    focal, centre = np.split(pinholes[bundle.lens[bundle.view]], 2, axis=1)
    turned, shift = w2c[:, :, :3], w2c[:, :, 3]
    flat = np.column_stack([(bundle.pixels - centre) / focal, np.ones(len(bundle.view))])
    rays = np.einsum("oji,oj->oi", turned[bundle.view], flat)
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    origins = -np.einsum("vji,vj->vi", turned, shift)[bundle.view]
    across = np.eye(3) - rays[:, :, None] * rays[:, None, :]
    count = int(bundle.track.max(initial=-1)) + 1
    matrix, right, mean = np.zeros((count, 3, 3)), np.zeros((count, 3)), np.zeros((count, 3))
    np.add.at(matrix, bundle.track, across)
    np.add.at(right, bundle.track, np.einsum("oij,oj->oi", across, origins))
    np.add.at(mean, bundle.track, rays)
    seen = np.maximum(np.bincount(bundle.track, minlength=count), 1)
    # |mean direction| is about 1 - (variance of the angles) / 2
    spread = 1 - np.linalg.norm(mean, axis=1) / seen
    is_wide = spread > LEAST_ANGLE**2 / 8
    xyz = np.full((count, 3), np.nan)
    xyz[is_wide] = np.linalg.solve(matrix[is_wide], right[is_wide][:, :, None])[:, :, 0]
    return xyz


def errors(bundle: Bundle, w2c: np.ndarray, pinholes: np.ndarray, xyz: np.ndarray) -> np.ndarray:
    """Reprojection errors [O], pixels; infinite behind the camera, NaN without a triangulated point."""
    pose, pinhole = w2c[bundle.view], pinholes[bundle.lens[bundle.view]]
    seen = np.einsum("oij,oj->oi", pose[:, :, :3], xyz[bundle.track]) + pose[:, :, 3]
    with np.errstate(all="ignore"):
        pixels = seen[:, :2] / seen[:, 2:] * pinhole[:, :2] + pinhole[:, 2:]
    return np.where(seen[:, 2] <= 0, np.inf, np.linalg.norm(pixels - bundle.pixels, axis=1))


def consistent(bundle: Bundle, error: np.ndarray, limit: float) -> np.ndarray:
    """bool [O], the observations with an `error` [O] up to `limit`, of tracks with at least LEAST_VIEWS of them."""
    kept = error <= limit
    counts = np.bincount(bundle.track[kept], minlength=int(bundle.track.max(initial=-1)) + 1)
    return kept & (counts[bundle.track] >= LEAST_VIEWS)


def resected(bundle: Bundle) -> tuple[np.ndarray, int]:
    """The pose [3, 4] of the last view that fits the points of the other views, and the number of its inliers.

    The points are triangulated from the other views alone, whose cameras are kept.
    """
    last = len(bundle.w2c) - 1
    own, others = (_selected(bundle, rows) for rows in (bundle.view == last, bundle.view != last))
    xyz = triangulate(others, bundle.w2c, bundle.pinholes)
    kept = consistent(others, errors(others, bundle.w2c, bundle.pinholes, xyz), LIMITS[-1])
    xyz[np.bincount(others.track[kept], minlength=len(xyz)) == 0] = np.nan
    w2c = bundle.w2c.copy()
    for limit, scale in zip(LIMITS, LOSS_SCALES, strict=True):
        near = _selected(own, errors(own, w2c, bundle.pinholes, xyz) <= limit)
        if len(near.view) < LEAST_POINTS:
            break
        w2c[last] = _fitted(near, w2c[last], xyz[near.track], scale)
    return w2c[last], int((errors(own, w2c, bundle.pinholes, xyz) <= LIMITS[-1]).sum())


def _fitted(seen: Bundle, pose: np.ndarray, xyz: np.ndarray, scale: float) -> np.ndarray:
    """The pose [3, 4] that projects the points [O, 3] to the pixels of `seen` best, from a pose nearby."""
    from scipy.optimize import least_squares
    from scipy.spatial.transform import Rotation

    focal, centre = np.split(seen.pinholes[seen.lens[seen.view]], 2, axis=1)

    def moved(change: np.ndarray) -> np.ndarray:
        return np.column_stack([Rotation.from_rotvec(change[:3]).as_matrix() @ pose[:, :3], pose[:, 3] + change[3:]])

    def residuals(change: np.ndarray) -> np.ndarray:
        points = xyz @ moved(change)[:, :3].T + moved(change)[:, 3]
        return (points[:, :2] / points[:, 2:] * focal + centre - seen.pixels).ravel()

    return moved(least_squares(residuals, np.zeros(6), x_scale="jac", loss="cauchy", f_scale=scale).x)


def _selected(bundle: Bundle, rows: np.ndarray) -> Bundle:
    """The bundle with some of its observations, bool [O]."""
    return replace(bundle, view=bundle.view[rows], track=bundle.track[rows], pixels=bundle.pixels[rows])


def _adjusted(
    bundle: Bundle,
    w2c: np.ndarray,
    pinholes: np.ndarray,
    xyz: np.ndarray,
    kept: np.ndarray,
    scale: float,
    refines_focal: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One bundle adjustment of the inliers: poses, pinholes, points."""
    import pycolmap

    model, names = _model(bundle, w2c, pinholes, xyz, kept)
    options = pycolmap.BundleAdjustmentOptions(
        refine_focal_length=refines_focal, refine_principal_point=False, refine_extra_params=False, print_summary=False
    )
    options.ceres.loss_function_type = pycolmap.LossFunctionType.CAUCHY
    options.ceres.loss_function_scale = scale
    options.ceres.solver_options.num_threads = 1  # the same result on every machine
    pycolmap.set_random_seed(SEED)
    pycolmap.bundle_adjustment(model, options)
    poses, points = w2c.copy(), np.full_like(xyz, np.nan)
    for view in range(len(w2c)):
        poses[view] = model.image(view + 1).cam_from_world().matrix()
    for track, name in names.items():
        points[track] = model.point3D(name).xyz
    lenses = np.array([model.camera(lens + 1).params for lens in range(len(pinholes))])
    lenses[:, 2:] -= PIXEL_CENTRE
    return poses, lenses, points


def _model(
    bundle: Bundle, w2c: np.ndarray, pinholes: np.ndarray, xyz: np.ndarray, kept: np.ndarray
) -> tuple[Any, dict[int, int]]:
    """A pycolmap model of the inliers, and its point ids by track."""
    import pycolmap

    model = pycolmap.Reconstruction()
    for lens, (focal_x, focal_y, x, y) in enumerate(pinholes):
        model.add_camera_with_trivial_rig(
            pycolmap.Camera(
                camera_id=lens + 1,
                model="PINHOLE",
                width=max(1, round(2 * x)),
                height=max(1, round(2 * y)),
                params=[focal_x, focal_y, x + PIXEL_CENTRE, y + PIXEL_CENTRE],
            )
        )
    place = np.zeros(len(kept), int)
    for view, pose in enumerate(w2c):
        own = np.flatnonzero(kept & (bundle.view == view))
        place[own] = np.arange(len(own))
        image = pycolmap.Image(
            name=str(view),
            keypoints=bundle.pixels[own] + PIXEL_CENTRE,
            camera_id=int(bundle.lens[view]) + 1,
            image_id=view + 1,
        )
        model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(pose))
    names = {}
    order = np.flatnonzero(kept)[np.argsort(bundle.track[kept], kind="stable")]
    tracks, starts = np.unique(bundle.track[order], return_index=True)
    for track, rows in zip(tracks, np.split(order, starts[1:]), strict=True):
        elements = [pycolmap.TrackElement(int(bundle.view[row]) + 1, int(place[row])) for row in rows]
        names[int(track)] = model.add_point3D(xyz[track], pycolmap.Track(elements))
    return model, names
