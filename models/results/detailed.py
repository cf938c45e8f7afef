"""The detail of the full-size photographs of a scene for a mesh."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import trimesh

from data.io.images import write_image
from data.pixels import size_within, to_uint8
from data.prepare.load import grey_loader
from data.scenes.config import TEST
from data.scenes.undistort import resized
from models.checkpoints.scenes import background
from models.machine import memory
from models.mesh.details import detailed
from models.mesh.grey_photographs import GreyPhotographs, cropped, reduction
from models.results.experiment import Experiment, held_out_scene
from models.results.metric_tables import DETAILS_FILE, FOLDER, NCC_WITHOUT, WITH_DETAILS, WITHOUT_DETAILS, write_json
from models.results.photo_consistency import photo_consistency
from models.results.render import shade_mesh
from models.runs.logger import RunLogger

LEAST_VIEWS = 3  # photographs
SHOWN = 10_000  # vertices that photographs are cropped to
LONGEST = 800  # longer side of the pictures, pixels


@dataclass(frozen=True)
class Delivered:
    """A mesh with details, or the given one; the NCC of held-out photographs across both, None without these."""

    mesh: trimesh.Trimesh
    before: float | None = None
    after: float | None = None


def with_details(
    experiment: Experiment, mesh: trimesh.Trimesh, log: RunLogger, parts: Callable[..., Iterator[Any]]
) -> Delivered:
    """The mesh, in the working frame, with the detail of the photographs, at a size that it has vertices for.

    The mesh itself if they do not agree better on another one: the photographs of the training that were not compared
    at a vertex, and the test photographs.
    """
    conf, scene, started = experiment.conf, experiment.scene, time.perf_counter()
    if scene.n_views < LEAST_VIEWS:
        log.info(f"details: none, because they need {LEAST_VIEWS} photographs")
        return Delivered(mesh)
    times = reduction(mesh, scene.pinholes, conf.dataset.downscale)
    crop = partial(cropped, points=np.asarray(mesh.vertices)[:: max(1, len(mesh.vertices) // SHOWN)])

    def photographs() -> GreyPhotographs:
        load = grey_loader(conf.dataset, scene, times, background(conf), crop)
        return GreyPhotographs(*zip(*load(scene.image_names), strict=True))

    refined = detailed(mesh, photographs(), partial(parts, desc="details"))
    memory.release_all()  # before photographs are compared, and colours found
    size = "of full size" if times == 1 else f"of 1/{times} of the size"
    figures = f"({refined.before:.3f} before, {refined.after:.3f} after), in {time.perf_counter() - started:.0f} s"
    if not refined.is_changed:
        log.info(f"details: the mesh stays: photographs {size} agree no better on another one {figures}")
        return Delivered(mesh)
    count = len(refined.mesh.vertices)
    log.info(f"details: {count} vertices as {scene.n_views} photographs {size} show them {figures}")
    test = held_out_scene(experiment, TEST)
    scores = []
    for one in (mesh, refined.mesh):
        scores.append(photo_consistency(conf, scene, test, one))
        memory.release_all()  # its ray caster, which is in a reference cycle
    before, after = (None if score is None else score.ncc for score in scores)
    if before is None or after is None:
        return Delivered(refined.mesh)
    words = f"details: test photographs correlate across the mesh by {after:.3f}, without details {before:.3f}"
    log.info(words if after > before else f"{words}: the mesh stays without")
    return Delivered(refined.mesh, before, after) if after > before else Delivered(mesh)


def compare(experiment: Experiment, mesh: trimesh.Trimesh, delivered: Delivered) -> None:
    """Write pictures of a mesh without and with details, and figures of it without."""
    scene = experiment.scene
    size = size_within(scene.size(0), LONGEST)[0]
    intrinsics = resized(scene.intrinsics[0], scene.size(0), size)
    without = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)  # with a ray caster that does not stay
    for name, one in ((WITHOUT_DETAILS, without), (WITH_DETAILS, delivered.mesh)):
        shaded = shade_mesh(one, intrinsics, scene.c2w[0], *size[::-1])
        write_image(experiment.path(FOLDER, name), to_uint8(shaded))
    write_json(experiment.path(FOLDER, DETAILS_FILE), {NCC_WITHOUT: delivered.before})
