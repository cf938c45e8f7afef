"""A self-contained HTML page: data, texts in two languages, scripts, and three.js for meshes.

three.js (MIT) is read from the wheel of trimesh, where it is part of a viewer. Also: images, meshes, cameras and links
to files as values for the pages, and texts for Markdown pages.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from data.errors import UserError, one_line, reason
from data.io.files import read_regular
from data.pixels import size_within
from data.scenes.scene import Scene
from models.mesh.clean import thinned
from models.mesh.mesh import Surface
from models.mesh.texture import TEXTURED_FACES

REPORT = "report.html"  # the page of a run
MOST_PAGE_BYTES = 1 << 26  # largest page that is read back
ASSETS = Path(__file__).resolve().parent / "assets"
VIEWER_ARCHIVE, VIEWER_PAGE = "templates/viewer.zip", "viewer.html.template"  # in the resources of trimesh
DATA_BEGIN, DATA_END = '<script id="data" type="application/json">', "</script>"


def document(app: str, title: str, data: Mapping[str, Any], language: str | None) -> bytes:
    """The page of assets/<app>.js with `data`, JSON values, in `language`; None for the language of the browser."""
    content = {"language": language, "title": title, **data}
    own = tuple(_asset(f"{name}.js") for name in ("base", "chart", "split", "mesh", app))
    words = f"const WORDS = {_as_json(json.loads(_asset('words.json')))};"
    scripts = (_asset("probe.js"), mesh_library(), words, *own)
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,"><style>{_asset("page.css")}</style></head>\n'
        f'<body><main id="page"></main>\n{DATA_BEGIN}'
    )
    body = "".join(f"<script>{script}</script>\n" for script in scripts)
    return f"{head}{_as_json(content)}{DATA_END}\n{body}</body></html>\n".encode("utf-8", "backslashreplace")


def data_of(page: bytes) -> dict[str, Any]:
    """The data of a page; raises ValueError if it is not a page of this program."""
    text = page.decode("utf-8")
    start, end = text.find(DATA_BEGIN), -1
    if start >= 0:
        end = text.find(DATA_END, start)
    if end < 0:
        raise ValueError("it contains no page data")
    data = json.loads(text[start + len(DATA_BEGIN) : end])
    if not isinstance(data, dict):
        raise ValueError("its data is not an object")
    return data


def read_page(path: Path) -> dict[str, Any]:
    """The data of a page file; raises UserError for a file of another program or a too large one, OSError as `open`."""
    content = read_regular(path, MOST_PAGE_BYTES + 1)
    if len(content) > MOST_PAGE_BYTES:
        raise UserError(f"it is larger than {MOST_PAGE_BYTES >> 20} MiB")
    try:
        return data_of(content)
    except (ValueError, RecursionError) as error:
        raise UserError(reason(error)) from error


@lru_cache
def mesh_library() -> str:
    """three.js from the viewer in the wheel of trimesh; "" if it is missing, which pages report."""
    from trimesh import resources, util

    try:
        archive: Any = util.decompress(resources.get_bytes(VIEWER_ARCHIVE), file_type="zip")
        text = archive[VIEWER_PAGE].read().decode("utf-8")
    except (OSError, KeyError, ValueError):
        return ""
    library = text.partition("<script>")[2].partition("\n(function(){")[0]  # controls and loaders follow it
    return library if "THREE" in library and library.rstrip().endswith(";") else ""


@lru_cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _as_json(content: Any) -> str:
    """JSON for a script element: it cannot end the element, and NaN and Inf become null."""
    return json.dumps(_finite(content), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    """The value with None in place of NaN and Inf."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


# Markup within a line, of Markdown and of embedded HTML.
SPECIAL = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]|~#$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def escaped(text: str) -> str:
    """`text` as one line of Markdown without markup."""
    return one_line(text).translate(SPECIAL)


LONGEST_PICTURE = 800  # longer side in pixels, that of validation images
LOSSLESS_SIDE = 256  # longer side up to which an image is stored without loss
MESH_FACES = 40_000  # about one megabyte, which phones rotate smoothly
CAMERA_DEPTH = 0.2  # height of a drawn camera, radii


def picture_uri(rgb: np.ndarray, longest: int = LONGEST_PICTURE) -> str:
    """uint8 [h, w, 3] or grey [h, w] as a data URI, reduced if a side exceeds `longest` pixels."""
    height, width = rgb.shape[:2]
    size, scale = size_within((width, height), longest)
    small = rgb if scale == 1.0 else cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    ordered = small if small.ndim == 2 else cv2.cvtColor(small, cv2.COLOR_RGB2BGR)
    quality = 101 if max(size) <= LOSSLESS_SIDE else 90  # per cent; above 100, WebP of OpenCV is lossless
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
    links = []
    for what, pattern, most in LINKED:
        try:
            files = sorted(path for path in folder.glob(pattern) if path.is_file())
        except OSError:
            continue
        newest = sorted({path.stem for path in files})[-most:]
        links += [[what, path.relative_to(folder).as_posix()] for path in files if path.stem in newest]
    return links
