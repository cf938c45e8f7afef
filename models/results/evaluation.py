"""Figures of a trained model, and the picture to look at."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np
import trimesh

from data.io.files import write_result
from data.io.images import to_uint8, write_image
from data.scenes.scene import Scene
from models.experiment import held_out_scene
from models.results.meshes import extract_mesh, write_world_mesh
from models.results.snapshot import Snapshot
from models.surface.metrics import chamfer, read_mesh
from models.surface.request import MeshRequest
from models.views import figures
from models.views.figures import Figures, ViewFigures
from models.views.render import RenderedView, normal_picture
from models.views.shading import shade_mesh
from models.watch.logger import RunLogger


@dataclass(frozen=True)
class Evaluation:
    """The figures of a run; None where the conf names nothing to compare with.

    Those of pictures are means over the held-out views; see `Figures`.
    """

    step: int
    psnr: float | None  # dB, over whole pictures
    chamfer: float | None  # working-frame units, mean of both directions
    seconds: float  # of training, over all its sessions
    ssim: float | None
    psnr_mask: float | None
    ssim_mask: float | None
    iou: float | None
    counts_first: str | None  # "psnr" or "psnr_mask"
    views: tuple[ViewFigures, ...]


def evaluate(snapshot: Snapshot, request: MeshRequest) -> Evaluation:
    """Figures against held-out views and the reference mesh, and the picture report/report.png to look at.

    Without held-out views the picture shows the first photograph's. Raises EmptySurfaceError where a kind of model that
    has a surface shows none.
    """
    experiment = snapshot.experiment
    held_out = held_out_scene(experiment)
    scene = held_out or experiment.scene
    mask_first = snapshot.mask_first(scene)
    first = snapshot.render(*scene.rays(0))
    views = _compare_views(snapshot, held_out, first, mask_first) if held_out else ()
    mesh = None
    if snapshot.model.level_set is not None:
        mesh = extract_mesh(snapshot, request)
        write_world_mesh(snapshot, mesh)
    reference = experiment.conf.dataset.reference_mesh
    evaluation = Evaluation(
        step=snapshot.step,
        chamfer=chamfer(mesh, read_mesh(reference)).chamfer if reference and mesh is not None else None,
        seconds=snapshot.seconds,
        counts_first=("psnr_mask" if mask_first else "psnr") if held_out else None,
        views=views,
        **asdict(figures.mean(views)),
    )
    path = experiment.path("report", "report.png")
    write_image(path, _report_picture(scene, first, mesh, mask_first))
    content = json.dumps(asdict(evaluation), indent=1) + "\n"
    write_result(experiment.path("report", "report.json"), content.encode())
    _log_evaluation(snapshot.log, evaluation)
    panels = "rendering | photograph | normals" if mesh is None else "rendering | photograph | normals | mesh"
    snapshot.log.info(f"{panels}: {path}")
    return evaluation


def _compare_views(
    snapshot: Snapshot, held_out: Scene, first: RenderedView, mask_first: bool
) -> tuple[ViewFigures, ...]:
    """The figures of all held-out views, of which the first is rendered already; each is told in the text log."""
    views = []
    for view in snapshot.log.progress(range(held_out.n_views), desc="held-out views"):
        rendered = snapshot.render(*held_out.rays(view)) if view else first
        compared = figures.compare(rendered, held_out.rgb_image(view), held_out.mask_image(view))
        views.append(ViewFigures(**asdict(compared), view=held_out.image_names[view]))
        snapshot.log.note(f"held-out view {held_out.image_names[view]}: PSNR {figures.text(compared, mask_first)}")
    return tuple(views)


def _report_picture(scene: Scene, view: RenderedView, mesh: trimesh.Trimesh | None, mask_first: bool) -> np.ndarray:
    """Rendering | photograph | normals | shaded mesh of the scene's first view, uint8 [h, 4 w, 3]; 3 w without a mesh.

    The photograph's background is greyed where the figures inside the mask count first.
    """
    height, width = view.rgb.shape[:2]
    photograph, mask = scene.rgb_image(0), scene.mask_image(0)
    if mask_first and mask is not None:
        photograph = figures.greyed(photograph, mask)
    pictures = [to_uint8(view.rgb), to_uint8(photograph), normal_picture(view.normal, scene.c2w[0])]
    if mesh is not None:
        pictures.append(to_uint8(shade_mesh(mesh, scene.intrinsics[0], scene.c2w[0], height, width)))
    return np.concatenate(pictures, axis=1)


def _log_evaluation(log: RunLogger, evaluation: Evaluation) -> None:
    """The figures, one a line."""
    if evaluation.views:
        mean = Figures(**{name: getattr(evaluation, name) for name in figures.NAMES})
        log.info(f"PSNR on held-out views: {figures.text(mean, evaluation.counts_first == 'psnr_mask')}")
    if evaluation.chamfer is not None:
        log.info(f"Chamfer distance to the reference mesh (unit sphere frame): {evaluation.chamfer:.4f}")
    log.info(f"training time: {evaluation.seconds:.0f} s for {evaluation.step} steps")
