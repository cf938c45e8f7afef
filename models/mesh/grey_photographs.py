"""Grey photographs of any sizes to compare across a mesh, and the size that its vertices show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import trimesh

from data.rays import PinholeCamera
from data.scenes.undistort import resized
from models.mesh.clean import face_areas
from models.mesh.visibility import lengths

MOST_VERTICES = 700_000
EDGE = 2.1  # pixels of the photographs
MARGIN = 16  # pixels


@dataclass(frozen=True)
class GreyPhotographs:
    """Grey photographs with their cameras, in the frame of the mesh."""

    cameras: Sequence[PinholeCamera]
    images: Sequence[np.ndarray]  # V of uint8 [H, W]

    def reduced(self, times: int) -> GreyPhotographs:
        """With sides divided by `times`."""
        if times == 1:
            return self
        cameras, images = [], []
        for camera, image in zip(self.cameras, self.images, strict=True):
            full, size = (camera.width, camera.height), (max(4, camera.width // times), max(4, camera.height // times))
            cameras.append(PinholeCamera(resized(camera.intrinsics, full, size), camera.c2w, *size))
            images.append(cv2.resize(image, size, interpolation=cv2.INTER_AREA))
        return GreyPhotographs(cameras, images)

    def inputs(self) -> list[np.ndarray]:
        """Cameras, sizes and pixels as inputs of `agreement`."""
        rows, sizes, start = [], [], 0
        for camera in self.cameras:
            turn = camera.c2w[:3, :3].T
            rows.append((camera.intrinsics @ np.column_stack([turn, -turn @ camera.center])).ravel())
            sizes.append([camera.width, camera.height, start])
            start += camera.width * camera.height
        pixels = np.concatenate([image.ravel() for image in self.images])
        return [np.array(rows, np.float32), np.array(sizes, np.int32), pixels]


def cropped(camera: PinholeCamera, image: np.ndarray, points: np.ndarray) -> tuple[PinholeCamera, np.ndarray]:
    """The part of a photograph [H, W] that shows points [P, 3], and MARGIN pixels around it."""
    pixels, depth = camera.project(points)
    if not (depth > 0).all():
        return camera, image
    size = np.array([camera.width, camera.height])
    low = np.clip(np.floor(pixels.min(axis=0)) - MARGIN, 0, size - MARGIN).astype(int)
    high = np.clip(np.ceil(pixels.max(axis=0)) + MARGIN, low + MARGIN, size).astype(int)
    intrinsics = camera.intrinsics.copy()
    intrinsics[:2, 2] -= low
    part = np.ascontiguousarray(image[low[1] : high[1], low[0] : high[0]])
    return PinholeCamera(intrinsics, camera.c2w, *(high - low).tolist()), part


def pixel_size(mesh: trimesh.Trimesh, cameras: Sequence[PinholeCamera]) -> float:
    """The median size of a pixel at the surface, of the nearer cameras, units of the frame."""
    points = np.asarray(mesh.vertices)[:: max(1, len(mesh.vertices) // 1000)]
    sizes = [lengths(points - camera.center) / camera.intrinsics[0, 0] for camera in cameras]
    return float(np.median(np.quantile(sizes, 0.25, axis=0)))


def edge_of(mesh: trimesh.Trimesh, count: int) -> float:
    """The length of the edges with which `count` even vertices cover the area of a mesh."""
    return float(np.sqrt(face_areas(mesh).sum() / (2 * count) * 4.0 / np.sqrt(3.0)))


def reduction(mesh: trimesh.Trimesh, cameras: Sequence[PinholeCamera], downscale: int) -> int:
    """By what the sides of photographs are divided so that MOST_VERTICES have edges of EDGE pixels, at least 1.

    cameras: of the photographs divided by `downscale`.
    """
    return max(1, round(edge_of(mesh, MOST_VERTICES) * downscale / (EDGE * pixel_size(mesh, cameras))))
