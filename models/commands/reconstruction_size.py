"""Size, scale, ground sampling distance and camera errors of a reconstruction, as Markdown for the page of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import trimesh

from data.parsed_scene import ParsedScene, WorldFrame
from data.scenes.config import DatasetConfig
from data.scenes.readers.neus import read_neus
from models.results.report.document import escaped

MILLIMETRE = 1e-3
NO_SCALE = "not known, so the unit of the mesh is arbitrary; --marker, --scale or GPS positions give it"


def size_and_cameras(dataset: DatasetConfig, mesh: Path | None) -> list[str]:
    """The sections "Size" and "Cameras" of the page, as lines.

    `mesh`: the mesh file in the world frame; None if there is none. Raises SceneError if the scene cannot be read.
    """
    parsed = read_neus(Path(dataset.data_dir), dataset)
    frame = parsed.frame or WorldFrame("")
    extents = None if mesh is None else trimesh.load_mesh(mesh, process=False).extents
    text = ["## Size", "", *(f"- {escaped(line)}" for line in _size(parsed, frame, extents)), ""]
    return text + (_cameras(frame.camera_errors) if frame.camera_errors else [])


def pixel_size(parsed: ParsedScene) -> float:
    """The ground sampling distance: length in world units that a pixel shows at the centre of the region of interest.

    The median over the images. A scene of NeuS has a region of interest.
    """
    centre = (np.eye(4) if parsed.scale_mat is None else parsed.scale_mat)[:, 3]
    depths = np.array([(np.linalg.inv(image.c2w) @ centre)[2] for image in parsed.images])
    focals = np.array([image.lens.intrinsics[0, 0] for image in parsed.images])
    return float(np.median(np.abs(depths) / focals))


def _size(parsed: ParsedScene, frame: WorldFrame, extents: Sequence[float] | None) -> list[str]:
    """The facts on size, scale, up direction and resolution, one per line."""
    unit = " m" if frame.is_metric else ""
    pixel = pixel_size(parsed)
    found = []
    if extents is not None:
        found.append(f"extent of the mesh along x, y, z: {' x '.join(f'{value:.4g}' for value in extents)}{unit}")
    error = "" if frame.scale_error is None else f", standard error {frame.scale_error:.2%}"
    found.append(f"scale: {frame.scale_source}{error}" if frame.is_metric else f"scale: {NO_SCALE}")
    found.append(f"up: {frame.up_source or 'not known'}")
    shown = f"{pixel / MILLIMETRE:.3g} mm" if frame.is_metric else f"{pixel:.3g} units"
    found.append(f"ground sampling distance: {shown} per pixel of the images of the scene folder")
    return found


def _cameras(errors: Mapping[str, float]) -> list[str]:
    """The reprojection error of each photograph, the largest first."""
    rows = sorted(errors.items(), key=lambda entry: -entry[1])
    mean = float(np.mean([error for _, error in rows]))
    text = ["## Cameras", "", f"Mean reprojection error of the SfM points: {mean:.2f} px.", ""]
    text += ["| photograph | reprojection error, px |", "| --- | --- |"]
    return [*text, *(f"| {escaped(name)} | {error:.2f} |" for name, error in rows), ""]
