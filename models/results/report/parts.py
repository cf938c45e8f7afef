"""Images, meshes, cameras and links to files as values for the pages."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from data.pixels import size_within
from data.scenes.scene import Scene
from models.mesh.clean import thinned
from models.mesh.mesh import Surface
from models.mesh.texture import TEXTURED_FACES

LONGEST = 800  # longer side of an image in pixels, that of validation images
SMALL = 256  # longer side up to which an image is stored without loss
MESH_FACES = 40_000  # about one megabyte, which phones rotate smoothly
CAMERA_DEPTH = 0.2  # height of a drawn camera, radii


def picture_uri(rgb: np.ndarray, longest: int = LONGEST) -> str:
    """uint8 [h, w, 3] or grey [h, w] as a data URI, reduced if a side exceeds `longest` pixels."""
    height, width = rgb.shape[:2]
    size, scale = size_within((width, height), longest)
    small = rgb if scale == 1.0 else cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    ordered = small if small.ndim == 2 else cv2.cvtColor(small, cv2.COLOR_RGB2BGR)
    quality = 101 if max(size) <= SMALL else 90  # per cent; above 100, WebP of OpenCV is lossless
    encoded = cv2.imencode(".webp", ordered, [cv2.IMWRITE_WEBP_QUALITY, quality])[1]
    return "data:image/webp;base64," + base64.b64encode(encoded.tobytes()).decode("ascii")


def mesh_part(surface: Surface, faces: int = MESH_FACES) -> dict[str, Any]:
    """A coloured mesh, decimated to about `faces` triangles, or a textured one of up to TEXTURED_FACES as it is.

    Raises UserError if it is too large to decimate.
    """
    picture, uv = surface.picture, surface.uv
    if picture is not None and uv is not None and len(surface.mesh.faces) <= TEXTURED_FACES:
        mesh = surface.mesh
        look = {"picture": picture_uri(picture, longest=2048), "uv": _encoded(np.asarray(uv, "<f4"))}  # in any browser
        if surface.normals is not None:  # since vertices on chart borders are duplicated
            look["normals"] = _encoded(np.rint(np.nan_to_num(surface.normals) * 127).astype(np.int8))
    else:
        if picture is not None and uv is not None:
            height, width = picture.shape[:2]
            columns = np.clip(uv[:, 0] * width, 0, width - 1).astype(int)
            rows = np.clip((1.0 - uv[:, 1]) * height, 0, height - 1).astype(int)
            surface = replace(surface, rgb=picture[rows, columns])
        mesh, rgb = thinned(surface, faces)
        look = {} if rgb is None else {"colors": _encoded(rgb)}
    return {
        "positions": _encoded(np.asarray(mesh.vertices, "<f4")),
        "indices": _encoded(np.asarray(mesh.faces, "<u4")),
        "triangles": len(mesh.faces),
        "whole": len(surface.mesh.faces),
        **look,
    }


def camera_lines(scene: Scene) -> str:
    """The cameras of a scene as edges of pyramids: encoded pairs of points [E, 2, 3] in the working frame."""
    lines = []
    for view in range(scene.n_views):
        width, height = scene.size(view)
        pixels = np.array([[0, 0, 1], [width, 0, 1], [width, height, 1], [0, height, 1]], np.float64)
        rays = pixels @ np.linalg.inv(scene.intrinsics[view]).T
        corners = rays * (CAMERA_DEPTH / max(1.0, np.abs(rays[:, :2]).max())) @ scene.c2w[view, :3, :3].T
        centre = scene.c2w[view, :3, 3]
        for index in range(4):
            lines += [centre, centre + corners[index], centre + corners[index], centre + corners[(index + 1) % 4]]
    return _encoded(np.asarray(lines, "<f4"))


def _encoded(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


# Key of the text in words.json, pattern below the experiment folder, and how many of its names, each in all formats:
# names begin with the step, so the last ones are the newest.
LINKED = (
    ("file_mesh", "report/mesh.ply", 1),
    ("file_mesh", "meshes/*.*", 1),
    ("file_image", "report/report.png", 1),
    ("file_image", "validations_fine/*.png", 1),
    ("file_video", "render/*.mp4", 3),
    ("file_metrics", "report/metrics.json", 1),
    ("file_metrics", "report/metrics.csv", 1),
    ("file_checkpoint", "checkpoints/ckpt_*.safetensors", 1),
    ("file_conf", "recording/config.conf", 1),
    ("file_log", "logs/*.log", 1),
)


def linked_files(folder: Path) -> list[list[str]]:
    """The present files as [key of the text, path from `folder`]; none of a folder that cannot be read."""
    found = []
    for what, pattern, most in LINKED:
        try:
            files = sorted(path for path in folder.glob(pattern) if path.is_file())
        except OSError:
            continue
        newest = sorted({path.stem for path in files})[-most:]
        found += [[what, path.relative_to(folder).as_posix()] for path in files if path.stem in newest]
    return found
