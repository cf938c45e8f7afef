"""The photographs and points that all reconstructions get. Unit-sphere frame; V views, P points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np

from benchmarks.quality.surfaces import read_sparse_points
from data.errors import UserError
from data.parsed_scene import HELD_OUT_EVERY, SparsePoints, training_points
from data.scenes.scene import Scene
from models.evaluation.held_out_points import held_out_points
from models.surface.visibility import cameras_of, project

LEAST_SHARE = 0.5  # of the pixels of a photograph that the common camera must keep
LEAST_VIEWS = 2  # of a point: the formats of the peers have no point of a single photograph


@dataclass(frozen=True, eq=False)
class Task:
    """What is reconstructed, and the points it is measured by."""

    scene: Scene  # uint8 photographs of one camera, no masks, no points; its world frame is the unit-sphere frame
    points: SparsePoints  # for peers that select photographs by them: those that are not held out
    seen: np.ndarray  # bool [V, P]: the photographs that show them
    witness: np.ndarray  # [W, 3], the held-out points


def make_task(scene: Scene, points_file: Path | None) -> Task:
    """The task of a scene and the points of a .ply in the unit-sphere frame, or else of the scene.

    Masks only select the held-out points. Raises UserError for a scene without points, or whose photographs are too
    different for one camera.
    """
    points = scene.points if points_file is None else read_sparse_points(points_file)
    if points is None:
        raise UserError(f"{scene.name}: has no SfM points; give --points FILE, a .ply in the unit-sphere frame")
    held_out = points.at(np.arange(len(points.xyz)) % HELD_OUT_EVERY == 0)
    witness = held_out_points(held_out, scene.name, cameras_of(scene), scene.masks).xyz
    if len(witness) == 0:
        raise UserError(f"{scene.name}: none of its held-out SfM points is on the object; give other --points")
    alike = of_one_camera(scene)
    kept, seen = _seen(training_points(points), alike)
    return Task(alike, kept, seen, witness)


def of_one_camera(scene: Scene) -> Scene:
    """The photographs as one camera with square pixels and the principal point in the middle would show them.

    Some peers know no other camera. The focal length is the mean of all; the size is the largest that all photographs
    cover. Lens distortion is absent from a `Scene`. Raises UserError if more than half of a photograph would be lost.
    """
    focal = float(np.mean(scene.intrinsics[:, [0, 1], [0, 1]]))
    sizes = np.array([scene.size(view) for view in range(scene.n_views)])
    middle = scene.intrinsics[:, :2, 2] + 0.5  # from the corner of the first pixel
    scale = focal / scene.intrinsics[:, [0, 1], [0, 1]]
    half = (np.minimum(middle, sizes - middle) * scale).min(axis=0)
    width, height = np.floor(2 * half).astype(int)
    if (width * height < LEAST_SHARE * sizes.prod(axis=1) * scale.prod(axis=1)).any():
        raise UserError(
            f"{scene.name}: its photographs differ too much in size or focal length for one camera, which the peers "
            "need; choose photographs of one camera with dataset.train_views"
        )
    common = np.array([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1]])
    images = tuple(
        _resampled(image, intrinsics @ np.linalg.inv(common), (int(width), int(height)))
        for image, intrinsics in zip(scene.images, scene.intrinsics, strict=True)
    )
    return replace(
        scene,
        image_names=tuple(f"{view:03d}.png" for view in range(scene.n_views)),
        images=images,
        masks=None,
        points=None,
        frame=None,
        intrinsics=np.tile(common, (scene.n_views, 1, 1)),
        scene_to_world=np.eye(4),
    )


def _resampled(image: np.ndarray, to_given: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """uint8 image of `size` (width, height); `to_given` [3, 3] maps its pixels to those of `image`."""
    image = image if image.dtype == np.uint8 else (image >> 8).astype(np.uint8)
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    return cv2.warpPerspective(image, to_given, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)


def _seen(points: SparsePoints, scene: Scene) -> tuple[SparsePoints, np.ndarray]:
    """The points in at least LEAST_VIEWS photographs, and which: in their frame, since what hides them is not known."""
    seen = np.array([camera.shows(*project(points.xyz, camera)) for camera in cameras_of(scene)])
    rows = seen.sum(axis=0) >= LEAST_VIEWS
    return points.at(rows), seen[:, rows]
