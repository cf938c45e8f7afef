"""The rendered view of a photograph."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.io.files import write_result
from data.io.images import to_uint8, write_image
from data.scenes.scene import Scene
from data.scenes.split import TRAINING, VALIDATION
from models.evaluation import image_metrics
from models.evaluation.image_metrics import ImageMetrics
from models.results.context import EvalContext
from models.results.render import RenderedView, distance_picture, normal_picture
from models.results.sizes import picture_level


@dataclass(frozen=True)
class ValidationImage:
    """A rendered view of a photograph."""

    path: Path  # rendering, photograph and normals, stacked vertically
    view: int
    name: str  # that of the photograph
    group: str  # of the photograph
    c2w: np.ndarray  # [4, 4]
    rendered: RenderedView
    photograph: np.ndarray  # [h, w, 3] in [0, 1]
    figures: ImageMetrics


def validate_image(context: EvalContext, view: int, level: int, validation: Scene | None = None) -> ValidationImage:
    """Render the view of a photograph and write it, with its normals and distances.

    `level`: `train.validate_resolution_level`. `validation`: the scene of the view; None for a training photograph.
    """
    experiment = context.experiment
    scene, group = (experiment.scene, TRAINING) if validation is None else (validation, VALIDATION)
    resolution_level = picture_level(scene, view, level)
    rendered = context.render(*scene.rays(view, resolution_level))
    photograph = scene.rgb_image(view, resolution_level)
    normals = normal_picture(rendered.normal, scene.c2w[view])
    name = f"{context.step:08d}_0_{view}" + ("" if validation is None else f"_{VALIDATION}")
    path = experiment.path("validations_fine", f"{name}.png")
    write_image(path, np.concatenate([to_uint8(rendered.rgb), to_uint8(photograph), normals]))
    write_image(experiment.path("normals", f"{name}.png"), normals)
    write_image(experiment.path("distances", f"{name}.png"), distance_picture(rendered.distance, rendered.opacity))
    distances = io.BytesIO()
    np.save(distances, rendered.distance)
    write_result(experiment.path("distances", f"{name}.npy"), distances.getvalue())
    compared = image_metrics.compare(rendered, photograph, scene.mask_image(view, resolution_level))
    shape = photograph.shape
    psnr = image_metrics.text(compared, image_metrics.mask_first(context, scene))
    context.log.info(f"{group} photograph {view}, {shape[1]}x{shape[0]}: PSNR {psnr}, {path}")
    return ValidationImage(path, view, scene.photographs[view], group, scene.c2w[view], rendered, photograph, compared)
