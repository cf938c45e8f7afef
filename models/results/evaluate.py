"""Compute the metrics of a trained model; write them as a table and files, with an image."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import trimesh

from data.io.images import write_image
from data.pixels import to_uint8
from data.prepare.inspection.checks import missing_sides
from data.prepare.inspection.epipolar import median_distance, pair_distances
from data.scenes.config import TEST, TRAINING
from data.scenes.scene import Scene, is_metric, radius_of
from models.conf import flat, parse_config
from models.mesh.extraction import EmptySurfaceError, no_surface
from models.mesh.mesh import Surface, surface_to_world
from models.plan import PLAN_KEY
from models.requests import EvaluationRequest, MeshRequest
from models.results import image_metrics
from models.results.colored import write
from models.results.context import EvalContext
from models.results.cover import CoverMetrics, cover, cover_picture
from models.results.image_metrics import ImageMetrics, ValidationImage, ViewMetrics, deciding_group
from models.results.meshes import extract_mesh, write_world_mesh
from models.results.metric_tables import CSV_FILE, FOLDER, JSON_FILE, add_row, lines, write_json
from models.results.photo_consistency import ConsistencyMetrics, photo_consistency
from models.results.references import References
from models.results.relief import ReliefMetrics, relief_metrics
from models.results.render import RenderedView, normal_picture, shade_mesh
from models.results.surface_metrics import (
    FRAME_SAMPLES,
    DtuMetrics,
    PointMetrics,
    SurfaceMetrics,
    against_truth,
    dtu_metrics,
    frame_note,
    masked,
    moved,
    point_metrics,
    sample_faces,
)
from models.training.checkpoint import recorded

MESH_FILE, PICTURE, COVER_PICTURE = "mesh.ply", "report.png", "cover.png"


@dataclass(frozen=True)
class CameraMetrics:
    """The consistency of images and cameras, which does not depend on the model."""

    # The median distance of matches from their epipolar lines, in pixels of images reduced to 640; None: too few pairs
    epipolar_px: float | None
    epipolar_pairs: int  # pairs of photographs with enough overlap


METRIC_CLASSES = (
    ImageMetrics,
    SurfaceMetrics,
    ReliefMetrics,
    ConsistencyMetrics,
    PointMetrics,
    CoverMetrics,
    DtuMetrics,
    CameraMetrics,
)


def metrics_of(*parts: Any) -> dict[str, Any]:
    """Every metric of METRIC_CLASSES by name, in this order; None for those of missing parts. Names are unique."""
    names = {entry.name: None for kind in METRIC_CLASSES for entry in fields(kind)}
    return names | {name: value for part in parts if part is not None for name, value in asdict(part).items()}


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found."""

    values: dict[str, Any]  # every metric by name
    picture: ValidationImage  # the first test photograph, or the first one
    surface: Surface | None  # working frame


def evaluate(context: EvalContext, request: EvaluationRequest, references: References) -> Evaluated:
    """Compute all metrics with available references; write a table, report/metrics.json, a row of metrics.csv,
    report.png.

    Without test photographs the image shows the first photograph. All files are written at the end. Raises
    EmptySurfaceError if there is no surface, and UserError for ground truth in another frame.
    """
    scene = references.test or context.experiment.scene
    mesh = _mesh(context, request, references)
    # first, since they may raise
    (surface, note), dtu = _against_truth(mesh, references), None
    if references.dtu is not None and mesh is not None:
        photographed = context.experiment.scene
        inside = masked(mesh, photographed.pinholes, photographed.masks)
        if len(inside.faces) == 0:
            raise EmptySurfaceError("No surface: --protocol dtu removes all of it, because the masks exclude it")
        dtu = dtu_metrics(surface_to_world(Surface(inside), photographed.scene_to_world).mesh, references.dtu)
    mask_first = image_metrics.mask_first(context, scene)
    first = context.render(*scene.rays(0))
    views = _compare_views(context, references.test, first, mask_first) if references.test else ()
    notes = (*references.notes, *([note] if note else []), *image_metrics.outlier_notes(context))
    sfm_points, trained = references.sfm_points, context.experiment.scene
    # What supports the mesh: the photographs of the training, and the points that it did not use.
    support = None if mesh is None else cover(mesh, trained.pinholes, None if sfm_points is None else sfm_points.xyz)
    pairs, tried = pair_distances(trained)
    truth = None if references.truth is None else references.truth.mesh
    values = _about(context, request, references, mesh, mask_first) | metrics_of(
        image_metrics.mean(views) if views else None,
        surface,
        None if mesh is None or truth is None else relief_metrics(mesh, truth, trained.pinholes),
        None
        if mesh is None
        else photo_consistency(context.experiment.conf, trained, references.test, mesh, keeps=True),
        None if sfm_points is None or mesh is None else point_metrics(sfm_points, mesh),
        None if support is None else support.metrics,
        dtu,
        CameraMetrics(median_distance(pairs, tried), len(pairs)),  # as of inspect
    )
    path = context.experiment.path(FOLDER, MESH_FILE)
    written = references.surface  # the evaluated mesh with its colours, in the working frame
    if written is not None:
        write(context.experiment, context.step, context.log, MeshRequest(0), written, path)
    elif mesh is not None:
        written = write_world_mesh(context, mesh, path)
    if support is not None and mesh is not None:
        write_image(context.experiment.path(FOLDER, COVER_PICTURE), cover_picture(mesh, support, trained))
    experiment = context.experiment
    folder, table = experiment.folder / FOLDER, request.csv or experiment.folder / FOLDER / CSV_FILE
    text = experiment.checkpoint.state.get("conf") if experiment.checkpoint is not None else None
    conf = parse_config(text, "the checkpoint's conf") if text else experiment.conf  # published checkpoints have none
    details = {"views": [asdict(view) for view in views], PLAN_KEY: dict(experiment.plan.rows), "conf": flat(conf)}
    write_image(experiment.path(FOLDER, PICTURE), _report_picture(scene, first, mesh, mask_first))
    write_json(experiment.path(FOLDER, JSON_FILE), {**values, **details})
    add_row(table, values)
    for note in notes:
        context.log.info(note)
    context.log.info(*lines([("", values)]))
    panels = "rendering | photograph | normals" if mesh is None else "rendering | photograph | normals | mesh"
    context.log.info(f"{panels}: {folder / PICTURE}", f"metrics: {folder / JSON_FILE}, {table}")
    photograph, group = scene.rgb_image(0), TEST if references.test else TRAINING
    compared = image_metrics.compare(first, photograph, scene.mask_image(0))
    name, pose = scene.photographs[0], scene.c2w[0]
    picture = ValidationImage(folder / PICTURE, 0, name, group, pose, first, photograph, compared)
    return Evaluated(values, picture, written)


def _mesh(context: EvalContext, request: EvaluationRequest, references: References) -> trimesh.Trimesh | None:
    """The surface in the working frame; None for a model type without one, if no flag requires it."""
    if references.surface is not None:
        return references.surface.mesh
    if context.model.level_set is not None:
        return extract_mesh(context, request.mesh)
    if references.needs_surface:
        raise EmptySurfaceError(f"{references.needs_surface}: {no_surface(context.experiment.conf.model.type)}")
    return None


def _against_truth(mesh: trimesh.Trimesh | None, references: References) -> tuple[SurfaceMetrics | None, str]:
    """The metrics of a mesh in the working frame, and a note; raises UserError for ground truth in another frame."""
    truth = references.truth
    if truth is None or mesh is None:
        return None, ""
    generator = np.random.default_rng(0)
    points, given = sample_faces(mesh, FRAME_SAMPLES, generator)[0], truth.spread(FRAME_SAMPLES, generator)
    otherwise = moved(given, references.truth_otherwise)
    note = frame_note(points, given, otherwise, truth.source, references.truth_words)
    return against_truth(mesh, truth, references.tau), note


def _compare_views(context: EvalContext, test: Scene, first: RenderedView, mask_first: bool) -> tuple[ViewMetrics, ...]:
    """The metrics of all test photographs, the first of which is already rendered; each is logged in the text log."""
    views = []
    for view in context.log.progress(range(test.n_views), desc="test photographs"):
        rendered = context.render(*test.rays(view)) if view else first
        compared = image_metrics.compare(rendered, test.rgb_image(view), test.mask_image(view))
        views.append(ViewMetrics(**asdict(compared), view=test.photographs[view]))
        context.log.note(f"test photograph {test.photographs[view]}: PSNR {image_metrics.text(compared, mask_first)}")
    return tuple(views)


def _about(
    context: EvalContext,
    request: EvaluationRequest,
    references: References,
    mesh: trimesh.Trimesh | None,
    mask_first: bool,
) -> dict[str, Any]:
    """The inputs and options of the evaluation."""
    experiment, test, truth = context.experiment, references.test, references.truth
    state = {} if experiment.checkpoint is None else experiment.checkpoint.state
    return {
        "experiment": str(experiment.folder),
        "scene": experiment.scene.name,
        "model": experiment.conf.model.type,
        "step": context.step,
        "seconds": context.seconds,  # training time over all sessions
        "resolution": None if mesh is None or references.surface is not None else request.mesh.resolution,
        "threshold": request.mesh.threshold,
        "triangles": None if mesh is None else len(mesh.faces),
        "world_per_radius": radius_of(experiment.scene),
        "is_metric": is_metric(experiment.scene),  # the world unit is a metre
        "scale_error": frame.scale_error if (frame := experiment.scene.frame) else None,  # relative
        "test_photographs": None if test is None else test.n_views,
        "decided_by": deciding_group(recorded(state), test is not None),
        "counts_first": None if test is None else "psnr_mask" if mask_first else "psnr",
        "sides_missing": missing_sides(experiment.scene) or None,
        "ground_truth": None if truth is None or mesh is None else truth.source,
    }


def _report_picture(scene: Scene, view: RenderedView, mesh: trimesh.Trimesh | None, mask_first: bool) -> np.ndarray:
    """Rendering | photograph | normals | shaded mesh of the scene's first view, uint8 [h, 4 w, 3]; 3 w without a mesh.

    The photograph's background is faded if the metrics inside the mask are the primary ones.
    """
    height, width = view.rgb.shape[:2]
    photograph, mask = scene.rgb_image(0), scene.mask_image(0)
    if mask_first and mask is not None:
        photograph = image_metrics.greyed(photograph, mask)
    pictures = [to_uint8(view.rgb), to_uint8(photograph), normal_picture(view.normal, scene.c2w[0])]
    if mesh is not None:
        pictures.append(to_uint8(shade_mesh(mesh, scene.intrinsics[0], scene.c2w[0], height, width)))
    return np.concatenate(pictures, axis=1)
