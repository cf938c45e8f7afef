"""COLMAP's sparse models, binary or text: images/, optional masks/, sparse/0 (or sparse/, or the folder itself).

The format: https://colmap.github.io/format.html and https://colmap.github.io/cameras.html. Poses there are world to
camera with OpenCV's axes; the centre of the first pixel is (0.5, 0.5), which is (0, 0) here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data.cameras import PIXEL_CENTRE
from data.errors import SceneError
from data.io.images import photographs_folder
from data.io.named_files import masks_folder
from data.parsed_scene import CameraFiles, Lens, ParsedScene, SparsePoints
from data.scenes.readers import colmap_files
from data.scenes.readers.shots import Shot, posed_images

POINTS = "points3D"  # may be missing


def matches(folder: Path) -> str:
    """The first model; "" if there is none, or transforms.json was made from it."""
    models = [path.relative_to(folder) for path in colmap_files.model_folders(folder)]
    if not models or (models[0].parts[:1] == ("colmap",) and (folder / "transforms.json").is_file()):
        return ""
    return f"a COLMAP model in {models[0]}" if models[0].parts else f"cameras{colmap_files.model_suffix(folder)}"


def read_colmap(folder: Path, files: CameraFiles) -> ParsedScene:
    """The images, lenses, poses and points of the COLMAP project at `folder`; no image is decoded.

    The images are in the natural order of their file names, then of their folders. Of several models the one with the
    most images is used. `files` is not used; all readers have the same signature.

    Raises SceneError for a model that is missing or damaged or has an unsupported camera model, and for missing images
    or masks.
    """
    model, notes = _choose_model(folder)
    missing = [name for name in ("cameras", "images") if not _file(model, name).is_file()]
    if missing:
        names = ", ".join(_file(model, name).name for name in missing)
        raise SceneError(f"{model}: has no {names}, which belongs to the COLMAP model; export it again")
    cameras = {camera.key: camera for camera in _read(model, colmap_files.read_cameras, "cameras")}
    registered = _read(model, colmap_files.read_images, "images")
    points = _read(model, colmap_files.read_points, POINTS) if _file(model, POINTS).is_file() else None
    places = [folder] if folder != model else [folder, folder.parent, folder.parent.parent]
    image_folder, mask_folder = (
        next(filter(None, map(find, places)), None) for find in (photographs_folder, masks_folder)
    )
    if image_folder is None:
        raise SceneError(f"{folder}: has no folder images/ with the photographs of the model {model}; put them there")
    _require_sound(model, cameras, registered, points)
    lenses = {key: _lens(model, cameras[key]) for key in {image.camera for image in registered}}
    shots = [Shot(image.name, lenses[image.camera], np.linalg.inv(image.w2c)) for image in registered]
    images, more = posed_images(image_folder, mask_folder, shots)
    return ParsedScene(folder.resolve().name, model, images, points, notes=(*notes, *more))


def _choose_model(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The folder of the largest model, and a note if there are others."""
    models = colmap_files.model_folders(folder)
    if not models:
        raise SceneError(f"{folder}: has no COLMAP model: cameras, images and points3D as .bin or .txt in sparse/0")
    counts = {path: _read(path, colmap_files.count_images, "images") for path in models}
    largest = max(models, key=lambda path: counts[path])  # the first of equals
    if len(models) == 1:
        return largest, ()
    counted = ", ".join(f"{path} ({count})" for path, count in counts.items())
    note = f"several COLMAP models without a common frame: {counted} photographs; {largest}, the largest, is used"
    return largest, (note,)


def _file(model: Path, stem: str) -> Path:
    return model / f"{stem}{colmap_files.model_suffix(model)}"


def _read(model: Path, read: Callable[[Path], Any], stem: str) -> Any:
    """What `read` gives for a file of the model; raises SceneError if it is damaged."""
    try:
        return read(_file(model, stem))
    except (colmap_files.ModelFileError, OSError) as error:
        raise SceneError(f"{model}: the COLMAP model cannot be read ({error}); export it again") from error


def _require_sound(
    model: Path, cameras: Collection[int], images: Sequence[colmap_files.ColmapImage], points: SparsePoints | None
) -> None:
    """Raises SceneError for a model without images, or with numbers that are not finite."""
    if not images:
        raise SceneError(f"{model}: the COLMAP model has no posed photographs; run the mapper again with more overlap")
    for image in images:
        if not np.isfinite(image.w2c).all():
            raise SceneError(f"{model}: the pose of {image.name} is not finite; leave that image out")
        if image.camera not in cameras:
            raise SceneError(f"{model}: {image.name} has the camera {image.camera}, which the model does not contain")
    if points is not None and not np.isfinite(points.xyz).all():
        raise SceneError(f"{model}: its points contain NaN or infinite numbers; export the model again")


def _lens(model: Path, camera: colmap_files.ColmapCamera) -> Lens:
    """The lens of a camera; raises SceneError for an unsupported camera model, or invalid parameters."""
    layout, about = colmap_files.CAMERA_MODELS.get(camera.model), f"{model}: camera {camera.key}"
    if layout is None or not layout.focals:
        raise SceneError(
            f"{about} has the camera model {camera.model}, which is not supported; "
            "cut panoramas into views, as --mode prepare does, or undistort the photographs with COLMAP"
        )
    parameters, width, height = camera.parameters, camera.width, camera.height
    focals, centre, rest = np.split(parameters, [layout.focals, layout.focals + 2])
    if len(rest) != layout.distortion or not np.isfinite(parameters).all() or focals.min() <= 0:
        raise SceneError(f"{about} ({camera.model}) has the invalid parameters {list(parameters)}; correct them")
    if width < 1 or height < 1:
        raise SceneError(f"{about} has {width}x{height} pixels; correct its size")
    intrinsics = np.eye(3)
    intrinsics[0, 0], intrinsics[1, 1] = focals[0], focals[-1]
    intrinsics[:2, 2] = centre - PIXEL_CENTRE
    distortion = (*rest.tolist(), *[0.0] * (layout.padded - layout.distortion))
    return Lens(intrinsics, distortion, layout.is_fisheye, (width, height), layout.own)
