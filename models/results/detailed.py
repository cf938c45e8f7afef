"""The detail of the full-size photographs of a scene for a mesh."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import trimesh

from data.prepare.load import load_grey
from data.scenes.scene import Scene
from models.checkpoints.scenes import background
from models.mesh.details import detailed
from models.mesh.grey_photographs import GreyPhotographs, reduction
from models.methods.conf import ExperimentConfig
from models.runs.logger import RunLogger

LEAST_VIEWS = 3  # photographs


def with_details(
    conf: ExperimentConfig, scene: Scene, mesh: trimesh.Trimesh, log: RunLogger, parts: Callable[..., Iterator[Any]]
) -> trimesh.Trimesh:
    """The mesh, in the working frame, with the detail of the photographs, at a size that it has vertices for."""
    started = time.perf_counter()
    if scene.n_views < LEAST_VIEWS:
        return mesh
    times = reduction(mesh, scene.pinholes, conf.dataset.downscale)
    cameras, images = zip(*load_grey(conf.dataset, scene, times, background(conf)), strict=True)
    found = detailed(mesh, GreyPhotographs(cameras, images), partial(parts, desc="details"))
    words = f"{found.before:.3f} before, {found.after:.3f} after"
    size = "of full size" if times == 1 else f"of 1/{times} of the size"
    if found.is_changed:
        words = f"{len(found.mesh.vertices)} vertices as {scene.n_views} photographs {size} show them ({words})"
    else:
        words = f"the mesh stays: photographs {size} agree no better on another one ({words})"
    log.info(f"details: {words}, in {time.perf_counter() - started:.0f} s")
    return found.mesh
