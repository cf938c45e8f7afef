"""The rendered view of a photograph."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.io.files import write_result
from data.io.images import to_uint8, write_image
from models.evaluation import image_metrics
from models.evaluation.image_metrics import ImageMetrics
from models.results.context import EvalContext
from models.results.render import RenderedView, distance_picture, normal_picture


@dataclass(frozen=True)
class ValidationImage:
    """A rendered view of a photograph."""

    path: Path  # rendering, photograph and normals, stacked vertically
    view: int
    name: str  # that of the photograph
    c2w: np.ndarray  # [4, 4]
    rendered: RenderedView
    photograph: np.ndarray  # [h, w, 3] in [0, 1]
    figures: ImageMetrics


def validate_image(context: EvalContext, view: int, resolution_level: int) -> ValidationImage | None:
    """Render the view of a photograph and write it, with its normals and distances.

    Only the first rank writes; other ranks get None.
    """
    experiment, scene = context.experiment, context.experiment.scene
    rendered = context.render(*scene.rays(view, resolution_level))
    if not context.ranks.is_first:
        return None
    photograph = scene.rgb_image(view, resolution_level)
    normals = normal_picture(rendered.normal, scene.c2w[view])
    name = f"{context.step:08d}_0_{view}"
    path = experiment.path("validations_fine", f"{name}.png")
    write_image(path, np.concatenate([to_uint8(rendered.rgb), to_uint8(photograph), normals]))
    write_image(experiment.path("normals", f"{name}.png"), normals)
    write_image(experiment.path("distances", f"{name}.png"), distance_picture(rendered.distance, rendered.opacity))
    distances = io.BytesIO()
    np.save(distances, rendered.distance)
    write_result(experiment.path("distances", f"{name}.npy"), distances.getvalue())
    compared = image_metrics.compare(rendered, photograph, scene.mask_image(view, resolution_level))
    context.log.info(
        f"view {view}: PSNR {image_metrics.text(compared, image_metrics.mask_first(context, scene))}, {path}"
    )
    return ValidationImage(path, view, scene.image_names[view], scene.c2w[view], rendered, photograph, compared)
