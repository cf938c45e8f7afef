"""Extract the surface as a mesh, refine, clean (--clean, --object), colour and write it; account for its triangles,
stage by stage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import trimesh

from data.io.clock import phase
from data.scenes.frustum import box_in_frame
from data.scenes.scene import Posed, radius_of
from data.scenes.sparse import well_supported
from models.estimators.occupancy import SeenSpace
from models.machine import memory
from models.mesh import clean, finish, pieces, sparse
from models.mesh.clean import with_faces, without_ground
from models.mesh.color import Fallback
from models.mesh.extraction import EmptySurfaceError, no_surface
from models.mesh.finish import onto_level
from models.mesh.mesh import Surface, working_to
from models.mesh.visibility import Visibility
from models.methods.protocol import LevelSet
from models.requests import LARGEST, NETWORK, NONE, UNIT, VIEWS, MeshRequest
from models.results.colored import colored, decimated, default_suffix, write
from models.results.context import EvalContext
from models.results.detailed import compare, with_details
from models.results.experiment import Experiment
from models.runs.logger import RunLogger

UNFINISHED = "unfinished"  # subfolder of meshes/ with the blocks of an unfinished mesh
# Gradients and colours need this multiple of the memory of a value: the activations of all layers, and the features.
WIDE = 8


@phase("mesh")
def extract_mesh(context: EvalContext, request: MeshRequest) -> trimesh.Trimesh:
    """The marching-cubes surface without closed cavities, working frame; raises EmptySurfaceError if it is empty."""
    with accounted(context.log) as stages:
        return _extract(context, request, None, stages).mesh


@phase("mesh")
def validate_mesh(context: EvalContext, request: MeshRequest) -> Surface:
    """Write the requested mesh; returns it in the working frame. Raises EmptySurfaceError if there is no surface.

    Finished blocks of an incomplete mesh are kept in the experiment folder until it is written.
    """
    with accounted(context.log) as stages:
        extracted = _extract(context, request, context.experiment.subfolder("meshes") / UNFINISHED, stages)
        surface = _finished(context, request, extracted.mesh, stages)
    path = request.output or context.experiment.path("meshes", f"{context.step:08d}{default_suffix(request)}")
    write(context.experiment, context.step, context.log, request, surface, path)
    extracted.store.clear()
    return surface


@phase("mesh")
def finished_mesh(context: EvalContext, request: MeshRequest) -> Surface:
    """The requested mesh in the working frame, not written; raises EmptySurfaceError if there is no surface."""
    with accounted(context.log) as stages:
        return _finished(context, request, _extract(context, request, None, stages).mesh, stages)


def write_world_mesh(context: EvalContext, mesh: trimesh.Trimesh, path: Path) -> Surface:
    """Write a mesh of the working frame to `path`, in world coordinates, with the colours of the colour network.

    Returns it with these colours in the working frame.
    """
    surface = _as_the_network_says(context, mesh, None)
    write(context.experiment, context.step, context.log, MeshRequest(0, color=NETWORK), surface, path)
    return surface


def _extract(context: EvalContext, request: MeshRequest, folder: Path | None, stages: Stages) -> sparse.Sparse:
    """The surface in the working frame; logs the number of evaluations."""
    level_set = _level_set(context)
    low, high = box(context.experiment.views, request)
    space = seen_space(level_set, request, float((high - low).max()))
    extracted = sparse.extract(
        level_set if space is None else within(level_set, space),
        low,
        high,
        request.resolution,
        _threshold(level_set, request),
        _chunk(context),
        partial(context.parts, desc="surface"),
        folder,
    )
    stages.after(f"extracted with {request.resolution} grid points per side", extracted.mesh)
    if space is not None:
        extracted = replace(extracted, mesh=without_boundary(extracted.mesh, space))
        stages.after("at the end of the space that cameras see", extracted.mesh)
    whole = pieces.without_cavities(extracted.mesh, context.experiment.views.c2w[:, :3, 3])
    memory.release()  # ray casting of the whole mesh follows, which takes 300 bytes per triangle
    resumed = f", {extracted.resumed} of them from an earlier run" if extracted.resumed else ""
    blocks = "1 block" if extracted.blocks == 1 else f"{extracted.blocks} blocks"
    context.log.note(
        f"surface: {level_set.quantity} evaluated at {extracted.queries} points, {extracted.share:.1%} of a dense "
        f"grid, in {blocks}{resumed}; {extracted.rule}"
    )
    return replace(extracted, mesh=stages.after(f"closed cavities without a camera: {whole.removed}", whole.mesh))


def _level_set(context: EvalContext) -> LevelSet:
    """The field and level to extract; raises EmptySurfaceError for a method without a surface."""
    level_set = context.model.level_set
    if level_set is None:
        raise EmptySurfaceError(no_surface(context.experiment.conf.model.type))
    return level_set


def _chunk(context: EvalContext) -> int:
    """Points per evaluation."""
    return context.chunks.points(_level_set(context).outward)


def _threshold(level_set: LevelSet, request: MeshRequest) -> float:
    return level_set.threshold if request.threshold is None else request.threshold


def box(scene: Posed, request: MeshRequest) -> tuple[np.ndarray, np.ndarray]:
    """The corners [3] of the box to extract, in the working frame.

    A box in the world frame is rotated; the result is its axis-aligned bounding box. Raises UserError if float32 cannot
    separate its grid points, or if it is too far away.
    """
    to_frame = working_to(scene, request.frame)
    if request.bbox is None:
        return scene.bbox_min, scene.bbox_max
    return box_in_frame(np.reshape(request.bbox, (2, 3)), to_frame, "--bbox")


def _finished(context: EvalContext, request: MeshRequest, mesh: trimesh.Trimesh, stages: Stages) -> Surface:
    """Clean, simplify, refine, close and colour, in this order: each step reduces the work of the next ones.

    Details, which need all triangles, come before they are simplified.
    """
    mesh = cleaned(context.experiment, request, mesh, stages, context.log)
    if request.has_details:
        mesh = stages.after("details: even triangles", _with_details(context, request, mesh))
        mesh, normals = _simplified(context, request, mesh, stages), None
    else:
        mesh = _simplified(context, request, mesh, stages)
        memory.release_all()  # also the ray caster, which is in a reference cycle
        mesh, normals = _on_level(context, request, mesh)
    if request.is_watertight:
        closed = finish.closed(mesh)
        holes = "1 hole" if closed.holes == 1 else f"{closed.holes} holes"
        context.log.info(f"{holes} closed; {closed.area:.1%} of the surface was added, not seen in any photograph")
        mesh, normals = stages.after("holes closed", closed.mesh), None
    if request.color == NONE:
        return Surface(mesh, normals)
    if request.color == NETWORK:
        return _as_the_network_says(context, mesh, normals)
    # From the photographs, and elsewhere those of the colour network.
    color = _in_chunks(_level_set(context).color, _wide_chunk(context))
    return colored(context.experiment.scene, request, Surface(mesh, normals), color, context.log, context.parts)


def _with_details(context: EvalContext, request: MeshRequest, mesh: trimesh.Trimesh) -> trimesh.Trimesh:
    """Apply --details."""
    mesh, experiment = _on_level(context, request, mesh)[0], context.experiment
    delivered = with_details(experiment, mesh, context.log, context.parts)
    if delivered.mesh is not mesh:
        compare(experiment, mesh, delivered)
    return delivered.mesh


def _simplified(context: EvalContext, request: MeshRequest, mesh: trimesh.Trimesh, stages: Stages) -> trimesh.Trimesh:
    """Apply --decimate and --simplify; textured meshes are decimated by default."""
    if request.simplify is not None:
        radius = 1.0 if request.frame == UNIT else radius_of(context.experiment.views)
        simplified, error = finish.simplified(mesh, request.simplify / radius)
        return stages.after(f"simplified, error {error * radius:.3g}", simplified)
    simplified = decimated(mesh, request)
    return mesh if simplified is mesh else stages.after("decimated", simplified)


def _on_level(
    context: EvalContext, request: MeshRequest, mesh: trimesh.Trimesh
) -> tuple[trimesh.Trimesh, np.ndarray | None]:
    """Move the vertices onto the level set along the normals of the field; unchanged, and None, if it has none."""
    level_set = _level_set(context)
    if not request.is_refined or level_set.gradient is None:
        return mesh, None
    low, high = box(context.experiment.views, request)
    placed = onto_level(
        np.asarray(mesh.vertices),
        level_set.gradient,
        _threshold(level_set, request),
        0.5 * float(np.linalg.norm((high - low) / (request.resolution - 1))),
        _wide_chunk(context),
        partial(context.parts, desc="level set"),
    )
    context.log.note(
        f"mean distance of the vertices to the level set: {placed.before:.3g}, after refinement {placed.after:.3g}"
    )
    return trimesh.Trimesh(placed.vertices, mesh.faces, process=False), placed.normals


def _as_the_network_says(context: EvalContext, mesh: trimesh.Trimesh, normals: np.ndarray | None) -> Surface:
    """Vertex colours of the colour network; none if there is no such network."""
    level_set = _level_set(context)
    color = _in_chunks(level_set.color, _wide_chunk(context))
    if color is None:
        return Surface(mesh, normals)
    towards = clean.vertex_normals(mesh) if normals is None else normals
    rgb = color(np.asarray(mesh.vertices, np.float32), np.asarray(towards, np.float32))
    return Surface(mesh, normals, np.rint(np.clip(rgb, 0.0, 1.0) * 255.0).astype(np.uint8))


def _wide_chunk(context: EvalContext) -> int:
    """Points per evaluation of gradients or colours."""
    return max(1, _chunk(context) // WIDE)


def _in_chunks(color: Fallback | None, chunk: int) -> Fallback | None:
    """The colours of points and normals [P, 3], `chunk` at a time."""
    if color is None:
        return None
    return lambda points, normals: np.concatenate(
        [color(points[at : at + chunk], normals[at : at + chunk]) for at in range(0, len(points), chunk)]
    )


def seen_space(level_set: LevelSet, request: MeshRequest, size: float) -> SeenSpace | None:
    """The space in which to extract a mesh in a box of edge length `size`; None for all of it.

    In a box of the user, or at another level, the hidden part may be seen.
    """
    is_whole = request.clean not in (VIEWS, LARGEST) or request.bbox is not None or request.threshold
    if is_whole or level_set.seen_space is None:
        return None
    return level_set.seen_space(size / (request.resolution - 1))


def within(level_set: LevelSet, space: SeenSpace) -> LevelSet:
    """The field, with everything outside `space` outside the surface."""
    return replace(level_set, outward=lambda points: np.maximum(level_set.outward(points), space.distance(points)))


def without_boundary(mesh: trimesh.Trimesh, space: SeenSpace) -> trimesh.Trimesh:
    """The mesh of a field `within` a space, without the triangles on the boundary of the space."""
    stays = ~space.bounds(np.asarray(mesh.vertices))[mesh.faces].all(axis=1)
    return with_faces(mesh, stays) if stays.any() else mesh  # what no camera sees is removed, and reported, later


MOST_OF_IT = 0.5  # fraction of the area; to remove more is worth a warning
PART = 0.1  # of the area of the largest component: without the ground, smaller ones are no parts of the object


class Stages:
    """The number of triangles of a mesh after each stage."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, str]] = []

    def after(self, stage: str, mesh: trimesh.Trimesh) -> trimesh.Trimesh:
        """Add a stage, `mesh` is its result; returns it."""
        self._rows.append((len(mesh.faces), stage))
        return mesh

    def lines(self) -> Iterator[str]:
        """A line for each stage: the triangles after it, and by how many these are more or fewer than before."""
        before = 0
        for count, stage in self._rows:
            yield f"{count:>10} triangles, {count - before:+d}: {stage}"
            before = count


@contextlib.contextmanager
def accounted(log: RunLogger) -> Iterator[Stages]:
    """Stages, which are logged at the end, also after an error."""
    stages = Stages()
    try:
        yield stages
    finally:
        if lines := list(stages.lines()):
            log.info(*lines)


def cleaned(
    experiment: Experiment, request: MeshRequest, mesh: trimesh.Trimesh, stages: Stages, log: RunLogger
) -> trimesh.Trimesh:
    """Apply --clean and --object; raises EmptySurfaceError if nothing is left."""
    if request.clean is None and not request.is_object:
        return mesh
    if request.clean in (VIEWS, LARGEST):
        mesh = _as_seen(experiment, request, mesh, stages)
    small = 1.0 if request.clean == LARGEST else pieces.SMALL_PIECE
    if request.is_object:
        above = without_ground(mesh, experiment.views.c2w[:, :3, 3])
        if above is None:
            log.info("no ground plane with an object on it was found, so none is removed")
        else:
            share = f"{1.0 - above.area / mesh.area:.0%} of the surface is the ground or below it"
            mesh = stages.after(share, above)
        small = max(small, PART)
    points = experiment.views.points
    xyz = pieces.NO_SFM_POINTS if points is None else well_supported(points)
    result = pieces.without_dust(mesh, small, xyz)
    which = "beside the largest" if small == 1.0 else f"below {small:.0%} of the largest one's area"
    mesh = stages.after(f"pieces {which}: {result.words}", result.mesh)
    if request.clean == VIEWS and experiment.scene.masks is None:
        result = pieces.without_bystanders(mesh, experiment.scene.c2w[:, :3, 3], xyz)
        words = f"pieces apart from the object, seen from one side only: {result.words}"
        if result.area > MOST_OF_IT:
            log.warn(f"{words}: --no-clean keeps them")
        mesh = stages.after(words, result.mesh)
    return mesh


def _as_seen(experiment: Experiment, request: MeshRequest, mesh: trimesh.Trimesh, stages: Stages) -> trimesh.Trimesh:
    """The part that cameras see, and that no mask excludes."""
    scene = experiment.scene
    mesh = stages.after("no camera sees them", clean.as_seen(mesh, scene.pinholes, Visibility(mesh)))
    if scene.masks is not None and len(mesh.faces):
        mesh = stages.after("outside the dilated masks", clean.inside_masks(mesh, scene.pinholes, scene.masks))
    if len(mesh.faces) == 0:
        excluded, checked = ("", "cameras") if scene.masks is None else (" or the masks exclude", "masks")
        raise EmptySurfaceError(
            f"No surface: --clean {request.clean} removes all of it, because no camera sees{excluded} it; "
            f"check the {checked} (--mode inspect draws them), or omit --clean"
        )
    return mesh
