"""Colour a mesh from the photographs of a scene, per vertex or as a texture, and write it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

from data.errors import UserError
from data.scenes.scene import Scene
from models.conf import ExperimentConfig
from models.mesh import clean
from models.mesh.color import Fallback, Photographs, paint
from models.mesh.mesh import About, Surface, given_surface, scene_axes, surface_to_world, write_surface
from models.mesh.output import companions
from models.mesh.visibility import Visibility
from models.requests import NONE, TEXTURE, MeshRequest
from models.results.experiment import Experiment, open_scene
from models.runs.logger import RunLogger

Parts = Callable[..., Iterator[Any]]  # items, desc -> items, with a progress bar


def default_suffix(request: MeshRequest) -> str:
    """The suffix of a mesh without --output."""
    return ".glb" if request.color == TEXTURE else ".ply"


def decimated(mesh: trimesh.Trimesh, request: MeshRequest) -> trimesh.Trimesh:
    """Apply --decimate; textured meshes are decimated by default."""
    faces = request.decimate
    if request.color == TEXTURE and faces is None:
        from models.mesh.texture import TEXTURED_FACES

        faces = TEXTURED_FACES
    return mesh if faces is None else clean.decimated(mesh, faces)


def colored(
    scene: Scene, request: MeshRequest, surface: Surface, fallback: Fallback | None, log: RunLogger, parts: Parts
) -> Surface:
    """The surface, in the working frame, with colours of the photographs; `fallback`: those of unseen points."""
    started, mesh, normals = time.perf_counter(), surface.mesh, surface.normals
    photographs = Photographs(scene.pinholes, scene.images, scene.masks)
    painted = paint(
        np.asarray(mesh.vertices),
        clean.vertex_normals(mesh) if normals is None else normals,
        photographs,
        Visibility(mesh, keeps=True),
        fallback,
        partial(parts, desc="colours"),
        request.color == TEXTURE,
    )
    if request.mesh_file is not None and painted.seen == 0.0:
        raise UserError(
            f"--mesh {request.mesh_file}: no photograph sees it, so it has another frame or scale than the cameras; "
            "give it in the world frame, or in the unit-sphere frame with --frame unit"
        )
    if request.color == TEXTURE:
        from models.mesh.texture import texture

        surface = texture(mesh, request.texture_size, painted, photographs, partial(parts, desc="texture"))
    else:
        surface = Surface(mesh, normals, np.rint(painted.rgb * 255.0).astype(np.uint8))
    rest = "the colour network" if fallback is not None else "their mean colour"
    log.info(
        f"colours: {painted.seen:.1%} of the surface from {scene.n_views} photographs, the rest from {rest}, in "
        f"{time.perf_counter() - started:.0f} s"
    )
    return surface


def color_file(conf: ExperimentConfig, request: MeshRequest) -> tuple[Surface, Scene]:
    """Colour the mesh of `request.mesh_file` and write it; returns it in the working frame, and the scene.

    Raises UserError if the file is unusable, would be replaced, or is seen in no photograph.
    """
    experiment, source = open_scene(conf), request.mesh_file
    assert source is not None
    path = request.output or experiment.path("meshes", f"{source.stem}_colored{default_suffix(request)}")
    if source.resolve() in [file.resolve() for file in (path, *companions(path, request.color))]:
        raise UserError(f"--output {path}: is the mesh of --mesh; name another file")
    mesh = given_surface(experiment.scene, source, request.frame, None).mesh
    mesh = trimesh.Trimesh(mesh.vertices, mesh.faces)  # with vertices at one place merged
    log = RunLogger(experiment.folder, is_written=False)

    def parts(items: Iterable[Any], desc: str) -> Iterator[Any]:
        yield from log.progress(items, desc=desc, leave=False)

    if request.has_details:
        from models.results.detailed import with_details  # imports Jittor

        mesh = with_details(experiment, mesh, log, parts).mesh
    surface = Surface(decimated(mesh, request))
    if request.color != NONE:
        surface = colored(experiment.scene, request, surface, None, log, parts)
    write(experiment, 0, log, request, surface, path)
    return surface, experiment.scene


def write(
    experiment: Experiment, step: int, log: RunLogger, request: MeshRequest, surface: Surface, path: Path
) -> None:
    """Write a surface of the working frame in the requested frame, and log its size."""
    axes = scene_axes(path.suffix.lower(), experiment.views, request.frame, request.up)
    surface = surface_to_world(surface, axes.change)
    about = About(request.frame, axes.units, axes.up, step, experiment.conf.general.base_exp_dir)
    written = write_surface(surface, path, about)
    closed = "watertight" if clean.is_watertight(surface.mesh) else "not watertight"
    if surface.picture is not None:
        closed = "textured"
    names = ", ".join(map(str, written))
    log.info(
        f"mesh of {len(surface.mesh.vertices)} vertices and {len(surface.mesh.faces)} triangles, {closed}, "
        f"{axes.words(request.frame)}: {names}"
    )
