"""The detail of the full-size photographs of a scene for a mesh."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import trimesh

from data.io.images import write_image
from data.pixels import size_within, to_uint8
from data.prepare.load import load_grey
from data.scenes.config import TEST
from data.scenes.scene import Scene
from data.scenes.undistort import resized
from models.checkpoints.scenes import background
from models.mesh.details import detailed
from models.mesh.grey_photographs import GreyPhotographs, cropped, reduction
from models.methods.conf import ExperimentConfig
from models.results.experiment import Experiment, held_out_scene
from models.results.metric_tables import DETAILS_FILE, FOLDER, NCC_WITHOUT, WITH_DETAILS, WITHOUT_DETAILS, write_json
from models.results.photo_consistency import photo_consistency
from models.results.render import shade_mesh
from models.runs.logger import RunLogger

LEAST_VIEWS = 3  # photographs
SHOWN = 10_000  # vertices that photographs are cropped to
LONGEST = 800  # longer side of the pictures, pixels


def with_details(
    conf: ExperimentConfig, scene: Scene, mesh: trimesh.Trimesh, log: RunLogger, parts: Callable[..., Iterator[Any]]
) -> trimesh.Trimesh:
    """The mesh, in the working frame, with the detail of the photographs, at a size that it has vertices for.

    The mesh itself where they do not agree better on another one.
    """
    started = time.perf_counter()
    if scene.n_views < LEAST_VIEWS:
        log.info(f"details: none, because they need {LEAST_VIEWS} photographs")
        return mesh
    times = reduction(mesh, scene.pinholes, conf.dataset.downscale)
    crop = partial(cropped, points=np.asarray(mesh.vertices)[:: max(1, len(mesh.vertices) // SHOWN)])
    pairs = load_grey(conf.dataset, scene, times, background(conf), scene.image_names, crop)
    cameras, images = zip(*pairs, strict=True)
    found = detailed(mesh, GreyPhotographs(cameras, images), partial(parts, desc="details"))
    words = f"{found.before:.3f} before, {found.after:.3f} after"
    size = "of full size" if times == 1 else f"of 1/{times} of the size"
    if found.is_changed:
        words = f"{len(found.mesh.vertices)} vertices as {scene.n_views} photographs {size} show them ({words})"
    else:
        words = f"the mesh stays: photographs {size} agree no better on another one ({words})"
    log.info(f"details: {words}, in {time.perf_counter() - started:.0f} s")
    return found.mesh


def compare(experiment: Experiment, before: trimesh.Trimesh, after: trimesh.Trimesh) -> None:
    """Write pictures of a mesh without and with details, and figures of it without."""
    scene = experiment.scene
    size = size_within(scene.size(0), LONGEST)[0]
    intrinsics = resized(scene.intrinsics[0], scene.size(0), size)
    for name, mesh in ((WITHOUT_DETAILS, before), (WITH_DETAILS, after)):
        shaded = shade_mesh(mesh, intrinsics, scene.c2w[0], *size[::-1])
        write_image(experiment.path(FOLDER, name), to_uint8(shaded))
    found = photo_consistency(experiment.conf, scene, held_out_scene(experiment, TEST), before)
    write_json(experiment.path(FOLDER, DETAILS_FILE), {NCC_WITHOUT: None if found is None else found.ncc})
