"""Photo-consistency: image patches warped by the surface at a batch's rays (Geo-NeuS, arXiv 2205.15848)."""

from __future__ import annotations

import cv2
import numpy as np

from data.pixels import eight_bits
from data.scenes.frustum import Cameras
from data.scenes.scene import Scene
from data.scenes.sparse import neighbours, region_points
from models.config.blocks import PatchesConfig
from models.machine.backend import jt
from models.ops.hits import Hits, SurfaceHits, surface_hits
from models.ops.patches import CAMERA, Patches, patch_costs
from models.structs import Array, SurfaceOutput, Var

MOST_COMPARED = 512  # rays of a batch: more would double the cost of a step, and surface points recur in later steps
WORST = 0.9  # cost of a pair without information: a random correlation of 0.1
LEAST_OPACITY = 0.5  # smallest accumulated weight of the region along a ray
LEAST_SLOPE = 0.1  # smallest derivative of the distance against the ray


class PatchComparison:
    """The photographs of a scene as inputs of the operation."""

    def __init__(self, scene: Scene, conf: PatchesConfig) -> None:
        cameras = scene.cameras
        others = neighbours(cameras, region_points(scene.points), conf.neighbours)
        views = np.concatenate([np.arange(len(others), dtype=np.int32)[:, None], others], axis=1)
        self.views = jt.array(views).stop_grad()
        width, height = cameras.sizes.max(axis=0).astype(int)
        images = np.zeros((len(cameras), height, width), np.uint8)
        for image, place in zip(scene.images, images, strict=True):
            grey = cv2.cvtColor(eight_bits(image), cv2.COLOR_RGB2GRAY)
            place[: grey.shape[0], : grey.shape[1]] = grey
        self.images = jt.array(images).stop_grad()
        self.cameras = jt.array(_rows(cameras)).stop_grad()
        self.layout = Patches(int(height), int(width), conf.neighbours, conf.radius, conf.best, WORST)

    def costs(self, rendering: SurfaceOutput, view: Array, step_size: float, every: int) -> tuple[Var, Var]:
        """The cost of the patch at the surface of each ray, and whether there is one (0 or 1), [R, 1] each.

        view: [R], the image of each ray; step_size: the length of an interval; every: of so many rays one is compared.
        """
        at, points, normals = surface_hits_of(rendering, step_size, every)
        is_hit = (at >= 0).unsqueeze(1)
        views = self.views[jt.array(view)]
        views = jt.ternary(is_hit.broadcast(views.shape), views, jt.full_like(views, -1))
        costs = patch_costs(points, normals, views, self.cameras, self.images, self.layout)
        return costs, is_hit.float32()


def surface_hits_of(rendering: SurfaceOutput, step_size: float, every: int) -> SurfaceHits:
    """Where the rays of packed samples, `step_size` apart, meet the surface, one ray in `every`."""
    samples, geometry = rendering.samples, rendering.geometry
    sizes = Hits(samples.positions.shape[0], every, LEAST_OPACITY, step_size, LEAST_SLOPE)
    places = samples.positions, samples.directions, samples.offsets
    return surface_hits(geometry.sdf, geometry.gradient, rendering.region_weights, *places, sizes)


def _rows(cameras: Cameras) -> np.ndarray:
    """Cameras as in `ops.patches`, float32 [V, CAMERA]."""
    rows = np.zeros((len(cameras), CAMERA))
    for row, (intrinsics, c2w, size) in zip(rows, cameras, strict=True):
        turned, place = c2w[:3, :3], c2w[:3, 3]
        projection = intrinsics @ np.column_stack([turned.T, -turned.T @ place])
        row[:] = np.concatenate([projection.ravel(), (turned @ np.linalg.inv(intrinsics)).ravel(), place, size])
    return rows.astype(np.float32)
