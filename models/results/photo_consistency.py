"""How well test photographs agree with training photographs of full size across a mesh, in the working frame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import trimesh

from data.prepare.load import grey_loader
from data.scenes.scene import Scene
from models.checkpoints.scenes import background
from models.conf import ExperimentConfig
from models.machine.backend import jt
from models.mesh.grey_photographs import GreyPhotographs, cropped
from models.mesh.visibility import Visibility, dots, lengths
from models.ops.agreement import Agreement, agreement
from models.results.surface_metrics import sample_faces

POINTS, MOST_TESTS = 4000, 8  # area-uniform points of the mesh, and test photographs
SIDE, REACH = 5, 6.0  # points of a patch per side, a pixel apart, and pixels from its plane to the surface
APART = np.cos(np.radians(20.0))  # of the directions to the two cameras: fewer degrees hide errors
GRAZING = 0.3  # cosine


@dataclass(frozen=True)
class ConsistencyMetrics:
    """The normalised cross-correlation (NCC) of patches of the surface in pairs of photographs."""

    ncc: float  # mean
    ncc_patches: int


def photo_consistency(
    conf: ExperimentConfig, training: Scene, test: Scene | None, mesh: trimesh.Trimesh, keeps: bool = False
) -> ConsistencyMetrics | None:
    """The NCC of each test photograph and one of the training; None without test photographs, or common patches.

    keeps: as of `Visibility`.
    """
    if test is None:
        return None
    drawn, faces = sample_faces(mesh, POINTS, np.random.default_rng(0))
    points, normals, visibility = np.asarray(drawn), np.asarray(mesh.face_normals)[faces], Visibility(mesh, keeps)
    scores = [_scores(points, normals, visibility, pair) for pair in _pairs(conf, training, test, points)]
    every = np.concatenate(scores)
    return ConsistencyMetrics(float(every.mean()), len(every)) if len(every) else None


def _pairs(conf: ExperimentConfig, training: Scene, test: Scene, points: np.ndarray) -> Iterator[GreyPhotographs]:
    """A test photograph and the training photograph whose direction from the origin is about APART away."""
    dataset, behind = conf.dataset, background(conf)
    of_test = replace(dataset, data_dir=dataset.test_dir) if dataset.test_dir else dataset
    crop = partial(cropped, points=points)
    towards = [scene.c2w[:, :3, 3] / lengths(scene.c2w[:, :3, 3])[:, None] for scene in (test, training)]
    of_tests, of_training = grey_loader(of_test, test, 1, behind, crop), grey_loader(dataset, training, 1, behind, crop)
    for view in range(0, test.n_views, -(-test.n_views // MOST_TESTS)):
        beside = int(np.abs(towards[1] @ towards[0][view] - APART).argmin())
        pair = (*of_tests((test.image_names[view],)), *of_training((training.image_names[beside],)))
        yield GreyPhotographs(*zip(*pair, strict=True))


def _scores(points: np.ndarray, normals: np.ndarray, visibility: Visibility, pair: GreyPhotographs) -> np.ndarray:
    """The NCC of patches around the points [P, 3] that both photographs show."""
    for camera in pair.cameras:
        towards = camera.center - points
        shown = camera.shows(*camera.project(points)) & (dots(towards, normals) > GRAZING * lengths(towards))
        points, normals = points[shown], normals[shown]
        seen = visibility.sees(points, normals, camera.center)
        points, normals = points[seen], normals[seen]
    if len(points) == 0:
        return np.zeros(0)
    pixels = lengths(pair.cameras[0].center - points) / pair.cameras[0].intrinsics[0, 0]
    places = _patches(points, normals, visibility, pixels)
    rows, count = np.full((places.shape[0] * SIDE**2, SIDE**2), -1, np.int32), len(places)
    rows[:count] = np.arange(count * SIDE**2).reshape(count, -1)
    flat = places.reshape(-1, 3).astype(np.float32)
    views = np.broadcast_to(np.arange(2, dtype=np.int32), (len(flat), 2))
    given = [flat, flat, np.zeros((len(flat), 1), np.float32), rows, np.ascontiguousarray(views), *pair.inputs()]
    scores = agreement(*map(jt.array, given), Agreement(1, 2, SIDE**2)).numpy()[:count, 0]
    return scores[scores > -1]


def _patches(points: np.ndarray, normals: np.ndarray, visibility: Visibility, pixels: np.ndarray) -> np.ndarray:
    """SIDE x SIDE points of the surface, `pixels` [P] apart, the nearest first: [P or fewer, SIDE^2, 3]."""
    right = np.cross(normals, np.eye(3)[np.abs(normals).argmin(axis=1)])
    right /= lengths(right)[:, None]
    steps = sorted(range(-(SIDE // 2), SIDE // 2 + 1), key=abs)  # `agreement` weighs by the distance from the first
    x, y = (value.ravel()[None, :, None] * pixels[:, None, None] for value in np.meshgrid(steps, steps))
    above = (REACH * pixels)[:, None]
    tops = points[:, None] + x * right[:, None] + y * np.cross(normals, right)[:, None] + (above * normals)[:, None]
    along = np.repeat(normals, SIDE**2, axis=0)
    depths = visibility.thickness(tops.reshape(-1, 3), along).reshape(len(points), -1)
    whole = (depths < 2.0 * above).all(axis=1)
    return tops[whole] - depths[whole, :, None] * normals[whole, None]
