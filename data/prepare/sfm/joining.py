"""One model of several without a common frame, by points that two of them have in common; pycolmap's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from data.prepare.sfm.colmap_tasks import LEAST_ANGLE, MOST_ERROR, SEED
from data.prepare.sfm.matches import ENOUGH_MATCHES

SAME_PLACE = 0.02  # of the distance from the cameras: how far a common point of two models may lie apart


@dataclass(frozen=True)
class Matched:
    """The verified matches of two images."""

    names: tuple[str, str]
    features: tuple[np.ndarray, np.ndarray]  # int [M] each, indices of the image's features
    pixels: tuple[np.ndarray, np.ndarray]  # [M, 2] each


def joined(
    models: Sequence[Any], pairs: Sequence[Matched], database: str, images: str, cores: int, fixed: bool
) -> Any | None:
    """A pycolmap model of the first of `models` and all that share points with it, directly or through others.

    Points are the same where an image of both models, or a match, says so. None if there is no other such model.
    """
    import pycolmap

    if len(models) < 2 or len(placed := _placed(models, pairs)) < 2:
        return None
    whole = pycolmap.Reconstruction()
    for model, move in placed:
        for camera in model.cameras.values():
            if not whole.exists_camera(camera.camera_id):
                whole.add_camera(camera)
        for rig in model.rigs.values():
            if not whole.exists_rig(rig.rig_id):
                whole.add_rig(rig)
        for image in model.images.values():
            if image.has_pose and not whole.exists_image(image.image_id):
                pose = move.transform_camera_world(image.cam_from_world())
                add_image(whole, model, image, pose, np.array([point.xy for point in image.points2D]))
    options = pycolmap.IncrementalPipelineOptions(num_threads=cores, random_seed=SEED)
    options.triangulation.random_seed = SEED
    with TemporaryDirectory() as folder:
        whole = pycolmap.triangulate_points(whole, database, images, folder, options=options)
    for _ in range(2):  # the second time without the points that did not fit the cameras before the first
        adjustment = pycolmap.BundleAdjustmentOptions(print_summary=False)
        adjustment.refine_focal_length = adjustment.refine_extra_params = not fixed
        pycolmap.bundle_adjustment(whole, adjustment)
        pycolmap.ObservationManager(whole).filter_all_points3D(MOST_ERROR, LEAST_ANGLE)
    return whole


def add_image(whole: Any, model: Any, image: Any, pose: Any, pixels: np.ndarray) -> None:
    """Add an image of a model with the pose world to camera, and the pixels [F, 2] of its features, without points."""
    import pycolmap

    frame = pycolmap.Frame(frame_id=image.frame_id, rig_id=model.frames[image.frame_id].rig_id)
    frame.add_data_id(image.data_id)
    frame.rig_from_world = pose
    whole.add_frame(frame)
    added = pycolmap.Image(image.name, pixels, image.camera_id, image.image_id)
    added.frame_id = image.frame_id
    whole.add_image(added)
    whole.register_frame(image.frame_id)


def _placed(models: Sequence[Any], pairs: Sequence[Matched]) -> list[tuple[Any, Any]]:
    """The models that can be moved to the frame of the first, each with the pycolmap.Sim3d that does so."""
    import pycolmap

    points = [places_of(model) for model in models]
    middle = np.mean([image.projection_center() for image in models[0].images.values() if image.has_pose], axis=0)
    placed, moves = [0], {0: pycolmap.Sim3d()}
    while True:
        for index in [index for index in range(len(models)) if index not in moves]:
            common = [_common(points[index], points[other], pairs) for other in placed]
            there = [
                moves[other].scale * at @ moves[other].rotation.matrix().T + moves[other].translation
                for other, (_, at) in zip(placed, common, strict=True)
            ]
            move = _move(np.concatenate([here for here, _ in common]), np.concatenate(there), middle)
            if move is not None:
                moves[index] = move
                placed.append(index)
                break
        else:
            return [(models[index], moves[index]) for index in placed]


def places_of(model: Any) -> dict[str, np.ndarray]:
    """The point [F, 3] of each feature of each posed image, NaN for features without one."""
    places = {key: point.xyz for key, point in model.points3D.items()}
    nowhere = np.full(3, np.nan)
    return {
        image.name: np.array([places.get(seen.point3D_id, nowhere) for seen in image.points2D]).reshape(-1, 3)
        for image in model.images.values()
        if image.has_pose
    }


def _common(
    one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], pairs: Sequence[Matched]
) -> tuple[np.ndarray, np.ndarray]:
    """The points [N, 3] of two models, as by `_points_of`, that are the same."""
    both = [np.hstack([one[name], other[name]]) for name in one if name in other]
    for pair in pairs:
        for (a, b), (of_a, of_b) in ((pair.names, pair.features), (pair.names[::-1], pair.features[::-1])):
            if a in one and b in other:
                both.append(np.hstack([one[a][of_a], other[b][of_b]]))
    places = np.concatenate([np.empty((0, 6)), *both])
    places = np.unique(places[np.isfinite(places).all(axis=1)], axis=0)
    return places[:, :3], places[:, 3:]


def _move(here: np.ndarray, there: np.ndarray, middle: np.ndarray) -> Any | None:
    """The pycolmap.Sim3d from points [N, 3] to the same points elsewhere; None if fewer than ENOUGH_MATCHES fit it.

    middle [3]: of the cameras, in the frame of `there`.
    """
    import pycolmap

    if len(here) < ENOUGH_MATCHES:
        return None
    most = SAME_PLACE * float(np.median(np.linalg.norm(there - middle, axis=1)))
    fit: Any = pycolmap.estimate_sim3d_robust(here, there, pycolmap.RANSACOptions(max_error=most, random_seed=SEED))
    return fit["tgt_from_src"] if fit is not None and fit["num_inliers"] >= ENOUGH_MATCHES else None
