"""The cameras of a scene in the viewer, each a pyramid with its photograph as the base.

All photographs are one mesh with one texture, and all edges one set of lines, so that a browser without a GPU, which
shares the CPU with a training, can draw hundreds of cameras.
"""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
import trimesh
from PIL import Image

from data.io.images import eight_bits, size_within
from data.scenes.scene import Scene

THUMBNAIL = 200  # longer side of a photograph in the texture, in pixels, if there are few
TEXTURE = 4096  # texture size that every browser supports
EDGES = (90, 90, 90)
THICKNESS = 1.5  # line width in pixels


class Cameras:
    """The drawn cameras, which can be hidden and clicked."""

    def __init__(self, api: Any, scene: Scene, scale: float) -> None:
        """Add pyramids of height `scale` to viser's scene."""
        self.bases = bases(scene, scale)
        picture, places = texture(scene)
        mesh = textured(self.bases, picture, places)
        self.photographs = api.add_mesh_trimesh("/cameras/photographs", mesh, cast_shadow=False, receive_shadow=False)
        self._edges = api.add_line_segments(
            "/cameras/edges",
            edges(self.bases, scene.c2w[:, :3, 3]),
            EDGES,
            thickness=THICKNESS,
            thickness_units="screen",
        )

    def show(self, is_visible: bool) -> None:
        """Show or hide all cameras."""
        self.photographs.visible = self._edges.visible = is_visible


def fov_of(scene: Scene, view: int) -> float:
    """The vertical field of view of a photograph, radians."""
    return 2.0 * math.atan(0.5 * scene.size(view)[1] / float(scene.intrinsics[view, 1, 1]))


def bases(scene: Scene, scale: float) -> np.ndarray:
    """The corners [n, 4, 3] of the photographs at depth `scale`, clockwise from the top left."""
    tall = scale * np.tan([0.5 * fov_of(scene, view) for view in range(scene.n_views)])
    wide = tall * [width / height for width, height in map(scene.size, range(scene.n_views))]
    deep = np.full_like(tall, scale)
    local = np.stack(
        [np.stack([x * wide, y * tall, deep], -1) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))], axis=1
    )
    return np.einsum("nij,nkj->nki", scene.c2w[:, :3, :3], local) + scene.c2w[:, None, :3, 3]


def texture(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """All photographs in one texture, uint8 [h, w, 3], and the texture coordinates [n, 4, 2] of their corners, y up."""
    columns = math.ceil(math.sqrt(scene.n_views))
    rows = -(-scene.n_views // columns)
    cell = min(THUMBNAIL, TEXTURE // columns)
    picture = np.zeros((rows * cell, columns * cell, 3), np.uint8)
    places = np.empty((scene.n_views, 4, 2))
    for view in range(scene.n_views):
        (width, height), _ = size_within(scene.size(view), cell)
        row, column = divmod(view, columns)
        small = cv2.resize(scene.images[view], (width, height), interpolation=cv2.INTER_AREA)
        top, left = row * cell, column * cell
        picture[top : top + height, left : left + width] = eight_bits(small)
        # The centres of the corner pixels, so that interpolation does not include neighbouring photographs.
        x, y = np.array([left + 0.5, left + width - 0.5]), np.array([top + 0.5, top + height - 0.5])
        places[view] = np.stack([x[[0, 1, 1, 0]], y[[0, 0, 1, 1]]], axis=-1)
    shares = places / (columns * cell, rows * cell)
    return picture, np.stack([shares[..., 0], 1.0 - shares[..., 1]], axis=-1)


def textured(corners: np.ndarray, picture: np.ndarray, places: np.ndarray) -> trimesh.Trimesh:
    """One unlit, double-sided textured rectangle per camera."""
    first = 4 * np.arange(len(corners))[:, None, None]
    faces = (first + [[0, 1, 2], [0, 2, 3]]).reshape(-1, 3)
    material = trimesh.visual.material.PBRMaterial(
        emissiveTexture=Image.fromarray(picture),
        emissiveFactor=[1.0, 1.0, 1.0],
        baseColorFactor=[0, 0, 0, 255],
        metallicFactor=0.0,
        roughnessFactor=1.0,
        doubleSided=True,
    )
    visual = trimesh.visual.TextureVisuals(uv=places.reshape(-1, 2), material=material)
    return trimesh.Trimesh(corners.reshape(-1, 3), faces, visual=visual, process=False)


def edges(corners: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The eight edges of each pyramid, float32 [8 n, 2, 3]."""
    around = np.stack([corners, np.roll(corners, -1, axis=1)], axis=2)
    up = np.stack([corners, np.broadcast_to(centres[:, None], corners.shape)], axis=2)
    return np.concatenate([around, up], axis=1).reshape(-1, 2, 3).astype(np.float32)


def hit(corners: np.ndarray, origin: np.ndarray, direction: np.ndarray) -> int | None:
    """The camera with the photograph [n, 4, 3] that a ray hits first; None if it hits none."""
    right, down = corners[:, 1] - corners[:, 0], corners[:, 3] - corners[:, 0]
    normal = np.cross(right, down)
    with np.errstate(divide="ignore", invalid="ignore"):  # the photograph is seen edge-on
        along = np.sum(normal * (corners[:, 0] - origin), axis=-1) / (normal @ direction)
        place = origin + along[:, None] * direction - corners[:, 0]
        across = np.sum(place * right, axis=-1) / np.sum(right * right, axis=-1)
        below = np.sum(place * down, axis=-1) / np.sum(down * down, axis=-1)
        is_met = (along > 0) & (across >= 0) & (across <= 1) & (below >= 0) & (below <= 1)
    return int(np.argmin(np.where(is_met, along, np.inf))) if is_met.any() else None
