"""Ray-cast, smoothly shaded images of a mesh, without a window or graphics driver."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import trimesh

from data.cameras import image_pixels, pixels_to_rays

BACKGROUND = np.array([1.0, 1.0, 1.0])
CLAY = np.array([0.80, 0.83, 0.88])
AMBIENT = 0.16  # minimum brightness of faces turned away from the light
# Direction to the light in the camera frame (x right, y down, z forward): left and above. With a light at the camera,
# only outlines would show the shape.
LAMP = np.array([-0.45, -0.55, -1.0]) / np.linalg.norm([-0.45, -0.55, -1.0])
SUPERSAMPLES = 2  # rays per pixel and axis, for antialiasing
RAYS = 1 << 18  # cast at a time: each takes up to 400 bytes


def shade_mesh(mesh: trimesh.Trimesh, intrinsics: np.ndarray, c2w: np.ndarray, height: int, width: int) -> np.ndarray:
    """Image float32 [height, width, 3] in [0, 1] of `mesh`, in the frame of `c2w` [4, 4].

    `intrinsics` [3, 3] and pixels as in `data.cameras`. Lambertian surface with interpolated normals, lit from the side
    of the camera, on white; back faces are shaded like front faces. A mesh without faces gives the background.
    """
    lamp = np.asarray(c2w)[:3, :3] @ LAMP

    def shaded(face: np.ndarray, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
        return _clay(_smooth_normals(mesh, face, origins, directions), directions, lamp)

    return _image(mesh, intrinsics, c2w, height, width, shaded)


def paint_mesh(
    mesh: trimesh.Trimesh,
    rgb: np.ndarray | None,
    intrinsics: np.ndarray,
    c2w: np.ndarray,
    height: int,
    width: int,
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
    pixels = image_pixels(width, height)[:, :, None, :] + _offsets()
    image = np.empty((height, width, 3), np.float32)
    rows = max(1, RAYS // (width * SUPERSAMPLES**2))
    for start in range(0, height, rows):
        band = pixels[start : start + rows]
        origins, directions = pixels_to_rays(band.reshape(-1, 2), intrinsics, c2w)
        colors = np.tile(BACKGROUND, (len(directions), 1))
        face = _first_faces(mesh, origins, directions)
        hit = face >= 0
        colors[hit] = color(face[hit], origins[hit], directions[hit])
        image[start : start + rows] = colors.reshape(len(band), width, -1, 3).mean(axis=2)
    return image


def _offsets() -> np.ndarray:
    """Offsets of the rays of one pixel from its centre, [SUPERSAMPLES**2, 2], in pixels."""
    steps = (np.arange(SUPERSAMPLES) + 0.5) / SUPERSAMPLES - 0.5
    return np.stack(np.meshgrid(steps, steps, indexing="xy"), axis=-1).reshape(-1, 2)


def _first_faces(mesh: trimesh.Trimesh, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """The face [P] that each ray [P, 3] hits first, -1 for none."""
    if len(mesh.faces) == 0:
        return np.full(len(origins), -1)
    return np.asarray(mesh.ray.intersects_first(origins, directions))


def _smooth_normals(mesh: trimesh.Trimesh, face: np.ndarray, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Unit normals [P, 3], interpolated from the vertices of `face` [P] at the intersections with rays [P, 3]."""
    weights = _weights(mesh, face, origins, directions)
    normals = np.sum(weights[..., None] * mesh.vertex_normals[mesh.faces[face]], axis=1)
    return normals / np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), np.finfo(float).tiny)


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


def _clay(normals: np.ndarray, directions: np.ndarray, lamp: np.ndarray) -> np.ndarray:
    """Shaded colours [P, 3] for unit normals [P, 3] seen along `directions` [P, 3], lit from `lamp` [3]."""
    backwards = np.sum(normals * directions, axis=-1, keepdims=True) > 0.0
    lambert = np.maximum(np.where(backwards, -normals, normals) @ lamp, 0.0)
    return CLAY * (AMBIENT + (1.0 - AMBIENT) * lambert)[:, None]
