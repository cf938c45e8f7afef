"""Do the photographs agree about the surface that a batch meets? What `ops.patches` compares, of scene and batch."""

from __future__ import annotations

import cv2
import numpy as np

from data.capture import training_points
from data.io.images import eight_bits
from data.roi.frustum import Cameras
from data.roi.neighbours import neighbours
from data.roi.sparse import well_supported
from data.scenes.scene import Scene
from models.kinds.fast.batch import PackedBatch
from models.kinds.fast.conf import PatchesConfig
from models.machine.backend import jt
from models.ops.patches import CAMERA, Patches, patch_costs
from models.structs import FieldOutput, Var

MOST_COMPARED = 512  # rays of a batch: more cost as much as the rest of a step, and a surface is met again and again
WORST = 0.9  # cost of a pair that says nothing: a correlation of 0.1, as chance gives it
LEAST_OPACITY = 0.5  # of the region along a ray whose surface is compared
MOST_STEPS = 1.0  # from the heaviest sample to the surface: more, and the ray has met none
STEEPEST = 0.1  # least slope of the distance against a ray


class PatchComparison:
    """The photographs of a scene as the operation reads them."""

    def __init__(self, scene: Scene, conf: PatchesConfig) -> None:
        self.conf = conf
        sizes = np.array([scene.size(view) for view in range(scene.n_views)])
        cameras = Cameras(scene.intrinsics, scene.c2w, sizes.astype(np.float64))
        points = None
        if scene.points is not None:
            points = well_supported(training_points(scene.points))
            points = points[np.linalg.norm(points, axis=1) < 1]
        others = neighbours(cameras, points, conf.neighbours)
        self.views = np.concatenate([np.arange(len(others), dtype=np.int32)[:, None], others], axis=1)
        width, height = sizes.max(axis=0)
        images = np.zeros((len(sizes), height, width), np.uint8)
        for image, place in zip(scene.images, images, strict=True):
            grey = cv2.cvtColor(eight_bits(image), cv2.COLOR_RGB2GRAY)
            place[: grey.shape[0], : grey.shape[1]] = grey
        self.images = jt.array(images).stop_grad()
        self.cameras = jt.array(_rows(cameras)).stop_grad()
        self.layout = Patches(int(height), int(width), conf.neighbours, conf.radius, conf.best, WORST)

    def costs(self, batch: PackedBatch, field: FieldOutput, weights: np.ndarray) -> Var | None:
        """What the surface costs where rays meet it, [N, 1]; None where none does. weights: [S] of the samples."""
        at, ray = _heaviest(weights, batch.offsets)
        # By the bits of a place, so that the choice does not hang on the part of the batch.
        is_chosen = batch.points[at].view(np.uint32).sum(axis=1, dtype=np.uint32) // 64 % batch.every[0] == 0
        at, ray = at[is_chosen], ray[is_chosen]
        sdf, slope = field.sdf.numpy()[at, 0], (field.gradient.numpy()[at] * batch.directions[at]).sum(axis=1)
        is_met = (slope < -STEEPEST) & (np.abs(sdf) < MOST_STEPS * float(batch.step[0]))
        at, ray = at[is_met], ray[is_met]
        if not len(at):
            return None
        rows, directions = jt.array(at.astype(np.int32)), jt.array(batch.directions[at])
        normals = field.gradient[rows]
        further = -field.sdf[rows] / (normals * directions).sum(dim=1, keepdims=True)
        points = jt.array(batch.points[at]) + directions * further
        views = jt.array(self.views[batch.view[ray]])
        return patch_costs(points, normals, views, self.cameras, self.images, self.layout)


def _heaviest(weights: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each ray that is opaque in the region, its heaviest sample, and which ray it is; [N] twice."""
    rays = np.flatnonzero(np.diff(offsets) > 0)
    if not len(rays):
        return rays, rays
    heavy = weights[: offsets[-1]]
    peaks = np.maximum.reduceat(heavy, offsets[rays])
    row = np.repeat(np.arange(len(rays)), np.diff(offsets)[rays])
    hits = np.flatnonzero(heavy == peaks[row])
    at = hits[np.unique(row[hits], return_index=True)[1]]
    is_opaque = np.add.reduceat(heavy, offsets[rays]) > LEAST_OPACITY
    return at[is_opaque], rays[is_opaque]


def _rows(cameras: Cameras) -> np.ndarray:
    """Cameras as `ops.patches` has them, float32 [V, CAMERA]."""
    rows = np.zeros((len(cameras), CAMERA))
    for row, (intrinsics, c2w, size) in zip(rows, cameras, strict=True):
        turned, place = c2w[:3, :3], c2w[:3, 3]
        projection = intrinsics @ np.column_stack([turned.T, -turned.T @ place])
        row[:] = np.concatenate([projection.ravel(), (turned @ np.linalg.inv(intrinsics)).ravel(), place, size])
    return rows.astype(np.float32)
