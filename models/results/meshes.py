"""The surface as a mesh: extracted, moved onto the level set, cleaned, coloured, written."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import trimesh

from data.errors import UserError
from data.scenes.scene import Scene
from models.methods.protocol import LevelSet
from models.requests import LARGEST, NETWORK, NONE, TEXTURE, UNIT, VIEWS, MeshRequest
from models.results.context import EvalContext
from models.results.sharing import shared_out
from models.surface import clean, sparse
from models.surface.color import Fallback, Photographs, paint
from models.surface.export import surface_to_world
from models.surface.extraction import EmptySurfaceError, no_surface
from models.surface.formats import companions, write_surface
from models.surface.mesh import About, Surface
from models.surface.refine import onto_level
from models.surface.visibility import Visibility, cameras_of

UNFINISHED = "unfinished"  # below meshes/: the blocks of a mesh that is being made
UNITS = {UNIT: "radii of the region of interest", "world": "those of the scene's cameras"}
# Slopes and colours take that many times the memory of a value alone: the activations of all layers, and the features.
WIDE = 8
NARROWEST_BOX, FARTHEST_BOX = 1e-3, 1e3  # radii: 2048 points in less are no more apart than float32 tells


def extract_mesh(context: EvalContext, request: MeshRequest) -> trimesh.Trimesh:
    """The surface in the working frame, as marching cubes give it; raises EmptySurfaceError where there is none."""
    return _extract(context, request, None).mesh


def validate_mesh(context: EvalContext, request: MeshRequest) -> Surface:
    """Write the mesh that is asked for; returns it in the working frame. Raises EmptySurfaceError where there is none.

    A mesh that is being made keeps its finished blocks in the experiment's folder, until it is written. Of several
    ranks the first one writes.
    """
    suffix = ".glb" if request.color == TEXTURE else ".ply"
    if context.ranks.size > 1:  # blocks that one of them has kept would leave the others waiting
        found = _extract(context, request, None)
    else:
        found = _extract(context, request, context.experiment.subfolder("meshes") / UNFINISHED)
    surface = _finished(context, request, found.mesh)
    if not context.ranks.is_first:
        return surface
    path = request.output or context.experiment.path("meshes", f"{context.step:08d}{suffix}")
    _write(context, request, surface, path)
    found.kept.clear()
    return surface


def finished_mesh(context: EvalContext, request: MeshRequest) -> Surface:
    """The mesh that is asked for in the working frame, unwritten; raises EmptySurfaceError where there is none."""
    return _finished(context, request, extract_mesh(context, request))


def write_world_mesh(context: EvalContext, mesh: trimesh.Trimesh, path: Path) -> None:
    """A mesh of the working frame to `path`, in world coordinates and in the colour network's colours."""
    _write(context, MeshRequest(0, color=NETWORK), _as_the_network_says(context, mesh, None), path)


def _extract(context: EvalContext, request: MeshRequest, folder: Path | None) -> sparse.Sparse:
    """The surface in the working frame; the number of evaluations is logged."""
    level_set = _level_set(context)
    low, high = box(context.experiment.scene, request)
    found = sparse.extract(
        level_set,
        low,
        high,
        request.resolution,
        _threshold(level_set, request),
        _chunk(context),
        partial(context.log.progress, desc="surface", leave=False),
        folder,
    )
    resumed = f", {found.resumed} of them from an earlier run" if found.resumed else ""
    context.log.note(
        f"surface: {level_set.quantity} evaluated {found.queries} times, {found.share:.1%} of a dense grid, in "
        f"{found.blocks} blocks{resumed}; {found.rule}"
    )
    return found


def _level_set(context: EvalContext) -> LevelSet:
    """What is marched; raises EmptySurfaceError for a kind of model without a surface."""
    level_set = context.model.level_set
    if level_set is None:
        raise EmptySurfaceError(no_surface(context.experiment.conf.model.type))
    ranks = context.ranks
    if ranks.size == 1:
        return level_set
    shared = {
        name: shared_out(ranks, function)
        for name in ("outward", "gradient", "color")
        if (function := getattr(level_set, name)) is not None
    }
    return replace(level_set, **shared)


def _chunk(context: EvalContext) -> int:
    """Points at which the field is asked at a time: what fits the rank where least does, times their number."""
    own = context.chunks.points(context.model.level_set.outward)
    return min(context.ranks.everyone(own)) * context.ranks.size


def _threshold(level_set: LevelSet, request: MeshRequest) -> float:
    """The level that is meshed."""
    return level_set.threshold if request.threshold is None else request.threshold


def box(scene: Scene, request: MeshRequest) -> tuple[np.ndarray, np.ndarray]:
    """The corners [3] of what is meshed, in the working frame.

    A box of the world is turned there; what is meshed is the smallest upright one that holds it. Raises UserError
    where numbers of 32 bits cannot tell its grid points apart, or all of it is far off.
    """
    if request.bbox is None:
        return scene.bbox_min, scene.bbox_max
    corners = np.array(list(itertools.product(*zip(request.bbox[:3], request.bbox[3:], strict=True))))
    if request.frame != UNIT:
        to_unit = np.linalg.inv(scene.scene_to_world)
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            corners = corners @ to_unit[:3, :3].T + to_unit[:3, 3]
    low, high = corners.min(axis=0), corners.max(axis=0)
    if not (np.abs(corners).max() <= FARTHEST_BOX and (high - low).min() >= NARROWEST_BOX):
        raise UserError(
            f"--bbox {' '.join(f'{value:g}' for value in request.bbox)}: must be at least {NARROWEST_BOX:g} and reach "
            f"at most {FARTHEST_BOX:g} radii of the region of interest; give it in the frame of --frame"
        )
    return low, high


def _finished(context: EvalContext, request: MeshRequest, mesh: trimesh.Trimesh) -> Surface:
    """Cleaned, decimated, on the level set and coloured, in this order: each step has less to do for the one before."""
    mesh = _cleaned(context, request, mesh)
    faces = request.decimate
    if request.color == TEXTURE and faces is None:
        from models.surface.texture import TEXTURED_FACES

        faces = TEXTURED_FACES
    if faces is not None:
        mesh = clean.decimated(mesh, faces)
    mesh, normals = _on_level(context, request, mesh)
    if request.color == NONE:
        return Surface(mesh, normals)
    if request.color == NETWORK:
        return _as_the_network_says(context, mesh, normals)
    return _colored(context, request, mesh, normals)


def _cleaned(context: EvalContext, request: MeshRequest, mesh: trimesh.Trimesh) -> trimesh.Trimesh:
    """Without what --clean takes away; raises EmptySurfaceError where nothing is left."""
    if request.clean is None:
        return mesh
    scene = context.experiment.scene
    if request.clean in (VIEWS, LARGEST):
        before = len(mesh.faces)
        mesh = clean.as_seen(mesh, cameras_of(scene), scene.masks, Visibility(mesh))
        if len(mesh.faces) == 0:
            raise EmptySurfaceError(
                f"No surface: --clean {request.clean} removes all of it, because no camera sees it or the masks "
                "exclude it; check the masks (--mode inspect draws them), or omit --clean"
            )
        context.log.info(f"{before - len(mesh.faces)} triangles that no camera sees or the masks exclude are removed")
    is_alone = request.clean == LARGEST
    found = clean.without_dust(mesh, 1.0 if is_alone else clean.SMALL)
    removed = "1 piece" if found.removed == 1 else f"{found.removed} pieces"
    below = "beside the largest" if is_alone else f"below {clean.SMALL:.0%} of the largest one's area"
    context.log.info(f"{removed} {below} removed, {found.kept} kept")
    return found.mesh


def _on_level(
    context: EvalContext, request: MeshRequest, mesh: trimesh.Trimesh
) -> tuple[trimesh.Trimesh, np.ndarray | None]:
    """Moved onto the level set with the field's normals, where the field can be followed; else as it is, and None."""
    level_set = _level_set(context)
    if not request.is_refined or level_set.gradient is None:
        return mesh, None
    low, high = box(context.experiment.scene, request)
    found = onto_level(
        np.asarray(mesh.vertices),
        level_set.gradient,
        _threshold(level_set, request),
        0.5 * float(np.linalg.norm((high - low) / (request.resolution - 1))),
        _wide_chunk(context),
        partial(context.log.progress, desc="level set", leave=False),
    )
    context.log.note(
        f"mean distance of the vertices to the level set: {found.before:.3g}, after refinement {found.after:.3g}"
    )
    return trimesh.Trimesh(found.vertices, mesh.faces, process=False), found.normals


def _colored(context: EvalContext, request: MeshRequest, mesh: trimesh.Trimesh, normals: np.ndarray | None) -> Surface:
    """With the colours of the photographs, at the vertices or as a texture."""
    scene, level_set, visibility = context.experiment.scene, _level_set(context), Visibility(mesh)
    photographs = Photographs(cameras_of(scene), scene.images, scene.masks)
    shares = []

    def colors(points: np.ndarray, towards: np.ndarray) -> np.ndarray:
        found = paint(
            points,
            towards,
            photographs,
            visibility,
            _in_chunks(level_set.color, _wide_chunk(context)),
            partial(context.log.progress, desc="colours", leave=False),
        )
        shares.append(found.seen)
        return found.rgb

    if request.color == TEXTURE:
        from models.surface.texture import texture

        surface = texture(mesh, request.texture_size, colors)
    else:
        found = colors(np.asarray(mesh.vertices), clean.vertex_normals(mesh) if normals is None else normals)
        surface = Surface(mesh, normals, np.rint(found * 255.0).astype(np.uint8))
    rest = "the colour network" if level_set.color is not None else "their mean colour"
    context.log.info(f"colours: {shares[0]:.1%} of the surface from photographs, the rest from {rest}")
    return surface


def _as_the_network_says(context: EvalContext, mesh: trimesh.Trimesh, normals: np.ndarray | None) -> Surface:
    """With the colour network's colours at the vertices; without any where there is no such network."""
    level_set = _level_set(context)
    color = _in_chunks(level_set.color, _wide_chunk(context))
    if color is None:
        return Surface(mesh, normals)
    towards = clean.vertex_normals(mesh) if normals is None else normals
    found = color(np.asarray(mesh.vertices, np.float32), np.asarray(towards, np.float32))
    return Surface(mesh, normals, np.rint(np.clip(found, 0.0, 1.0) * 255.0).astype(np.uint8))


def _wide_chunk(context: EvalContext) -> int:
    """Points at which slopes or colours are asked for at a time."""
    return max(1, _chunk(context) // WIDE)


def _in_chunks(color: Fallback | None, chunk: int) -> Fallback | None:
    """The colour of points and normals [P, 3], asked for `chunk` at a time."""
    if color is None:
        return None
    return lambda points, normals: np.concatenate(
        [color(points[at : at + chunk], normals[at : at + chunk]) for at in range(0, len(points), chunk)]
    )


def _write(context: EvalContext, request: MeshRequest, surface: Surface, path: Path) -> None:
    """Write the surface in the requested frame, and log its size."""
    if request.frame != UNIT:
        surface = surface_to_world(surface, context.experiment.scene.scene_to_world)
    conf = context.experiment.conf.general.base_exp_dir
    write_surface(surface, path, About(request.frame, UNITS[request.frame], context.step, conf))
    closed = "watertight" if clean.is_watertight(surface.mesh) else "not watertight"
    if surface.picture is not None:
        closed = "textured"
    names = ", ".join(str(name) for name in (path, *companions(path, request.color)))
    context.log.info(
        f"mesh of {len(surface.mesh.vertices)} vertices and {len(surface.mesh.faces)} triangles, {closed}, "
        f"{request.frame} frame: {names}"
    )
