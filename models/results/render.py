"""Images: renderings, normals, distances and errors as pictures; a mesh, ray-cast without a window or driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
import trimesh

from data.cameras import image_pixels, pixels_to_rays
from data.pixels import to_uint8

# cameras look along +z with y down; normal maps have y up and z towards the viewer
PICTURE_AXES = np.array([1.0, -1.0, -1.0])
ERROR_OF_WHITE = 0.25  # mean difference of the channels that has the brightest colour of an error map
LEAST_ERROR = 1e-10  # mean square of two images; a level of 8 bits has 1.5e-5
FARTHEST_GREY = 0.15  # grey value of the farthest point, to differ from empty pixels


@dataclass(frozen=True)
class RenderedView:
    """A rendered image, float32."""

    rgb: np.ndarray  # [h, w, 3] in [0, 1]
    normal: np.ndarray  # [h, w, 3], working frame, outwards; length up to about opacity
    distance: np.ndarray  # [h, w], working-frame units along the unit ray; 0 where the object is not seen
    opacity: np.ndarray  # [h, w], of the object, in [0, 1]


def normal_picture(normal: np.ndarray, c2w: np.ndarray) -> np.ndarray:
    """Normals [h, w, 3] of the working frame in camera coordinates, uint8, 127.5 (1 + n) as in normal maps.

    Red is right, green is up, blue is towards the camera.
    """
    return to_uint8(normal @ c2w[:3, :3] * PICTURE_AXES * 0.5 + 0.5)


def distance_picture(distance: np.ndarray, opacity: np.ndarray, span: tuple[float, float] | None = None) -> np.ndarray:
    """Distances [h, w] as uint8 grey values: near is bright, far is dark, empty is black.

    `span`: the distances of the brightest and the darkest value; None for those of the image.
    """
    seen = opacity > 0.5
    if not seen.any():
        return np.zeros(distance.shape, np.uint8)
    near, far = span or (distance[seen].min(), distance[seen].max())
    share = np.clip((far - distance) / max(far - near, 1e-6), 0.0, 1.0)
    return np.where(seen, to_uint8(FARTHEST_GREY + (1.0 - FARTHEST_GREY) * share), 0).astype(np.uint8)


def error_picture(rendered: np.ndarray, photograph: np.ndarray) -> np.ndarray:
    """The error map of a rendering [h, w, 3], uint8 [h, w, 3]: black for no error, then red, then yellow."""
    error = np.abs(rendered - photograph).mean(axis=-1) / ERROR_OF_WHITE
    return cv2.cvtColor(cv2.applyColorMap(to_uint8(error), cv2.COLORMAP_INFERNO), cv2.COLOR_BGR2RGB)


def psnr(rendered: np.ndarray, photograph: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB of two images in [0, 1] of equal shape, over all pixels and channels.

    At most 100: an image without error counts in a mean, too.
    """
    error = float(np.mean((rendered.astype(np.float64) - photograph) ** 2))
    return -10.0 * np.log10(max(error, LEAST_ERROR))


MESH_BACKGROUND = np.array([1.0, 1.0, 1.0])
CLAY = np.array([0.80, 0.83, 0.88])
AMBIENT = 0.16  # minimum brightness of faces turned away from the light
# Direction to the light in the camera frame (x right, y down, z forward): left and above. With a light at the camera,
# only outlines would show the shape.
LAMP = np.array([-0.45, -0.55, -1.0]) / np.linalg.norm([-0.45, -0.55, -1.0])
RAYS_PER_AXIS = 2  # rays per pixel and axis, for antialiasing
RAYS_AT_ONCE = 1 << 18  # cast at a time: each takes up to 400 bytes


def shade_mesh(mesh: trimesh.Trimesh, intrinsics: np.ndarray, c2w: np.ndarray, height: int, width: int) -> np.ndarray:
    """Image float32 [height, width, 3] in [0, 1] of `mesh`, in the frame of `c2w` [4, 4].

    `intrinsics` [3, 3] and pixels as in `data.cameras`. Lambertian surface with interpolated normals, lit from the side
    of the camera, on white; back faces are shaded like front faces. A mesh without faces gives the background.
    """
    lamp = np.asarray(c2w)[:3, :3] @ LAMP

    def shaded(face: np.ndarray, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
        weights = _weights(mesh, face, origins, directions)
        normals = np.sum(weights[..., None] * mesh.vertex_normals[mesh.faces[face]], axis=1)
        normals = normals / np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), np.finfo(float).tiny)
        backwards = np.sum(normals * directions, axis=-1, keepdims=True) > 0.0
        lambert = np.maximum(np.where(backwards, -normals, normals) @ lamp, 0.0)
        return CLAY * (AMBIENT + (1.0 - AMBIENT) * lambert)[:, None]

    return _image(mesh, intrinsics, c2w, height, width, shaded)


def paint_mesh(
    mesh: trimesh.Trimesh, rgb: np.ndarray | None, intrinsics: np.ndarray, c2w: np.ndarray, height: int, width: int
) -> np.ndarray:
    """The same with the unlit vertex colours `rgb` uint8 [V, 3]; shaded if there are none."""
    if rgb is None:
        return shade_mesh(mesh, intrinsics, c2w, height, width)

    def painted(face: np.ndarray, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
        weights = _weights(mesh, face, origins, directions)
        return np.sum(weights[..., None] * (rgb[mesh.faces[face]] / 255.0), axis=1)

    return _image(mesh, intrinsics, c2w, height, width, painted)


def _image(
    mesh: trimesh.Trimesh,
    intrinsics: np.ndarray,
    c2w: np.ndarray,
    height: int,
    width: int,
    color: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """The image of `shade_mesh`, with the colours [P, 3] that `color` gives for faces [P], origins and directions
    [P, 3] of rays that hit the mesh.
    """
    steps = (np.arange(RAYS_PER_AXIS) + 0.5) / RAYS_PER_AXIS - 0.5  # from the centre of a pixel
    offsets = np.stack(np.meshgrid(steps, steps, indexing="xy"), axis=-1).reshape(-1, 2)
    pixels = image_pixels(width, height)[:, :, None, :] + offsets
    image = np.empty((height, width, 3), np.float32)
    rows = max(1, RAYS_AT_ONCE // (width * RAYS_PER_AXIS**2))
    for start in range(0, height, rows):
        band = pixels[start : start + rows]
        origins, directions = pixels_to_rays(band.reshape(-1, 2), intrinsics, c2w)
        colors = np.tile(MESH_BACKGROUND, (len(directions), 1))
        faces = mesh.ray.intersects_first(origins, directions) if len(mesh.faces) else np.full(len(origins), -1)
        face = np.asarray(faces)  # -1 for none
        hit = face >= 0
        colors[hit] = color(face[hit], origins[hit], directions[hit])
        image[start : start + rows] = colors.reshape(len(band), width, -1, 3).mean(axis=2)
    return image


def _weights(mesh: trimesh.Trimesh, face: np.ndarray, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Barycentric coordinates [P, 3] in `face` [P] of the intersections with rays [P, 3].

    Moller and Trumbore, "Fast, minimum storage ray/triangle intersection", 1997.
    """
    corners = mesh.vertices[mesh.faces[face]]
    edge_1, edge_2 = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    across = np.cross(directions, edge_2)
    determinant = np.sum(edge_1 * across, axis=-1)
    determinant = np.where(np.abs(determinant) < np.finfo(float).tiny, 1.0, determinant)
    offset = origins - corners[:, 0]
    u = np.sum(offset * across, axis=-1) / determinant
    v = np.sum(directions * np.cross(offset, edge_1), axis=-1) / determinant
    return np.clip(np.stack([1.0 - u - v, u, v], axis=-1), 0.0, 1.0)
