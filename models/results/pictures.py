"""The picture of a photograph's view."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from data.io.files import write_result
from data.io.images import to_uint8, write_image
from models.results.snapshot import Snapshot
from models.views import figures
from models.views.render import distance_picture, normal_picture


def validate_image(snapshot: Snapshot, view: int, resolution_level: int) -> Path:
    """Render a photograph's view; returns the picture of rendering, photograph and normals, one above the other.

    Normals and distances are written beside it.
    """
    experiment, scene = snapshot.experiment, snapshot.experiment.scene
    rendered = snapshot.render(*scene.rays(view, resolution_level))
    photograph = scene.rgb_image(view, resolution_level)
    normals = normal_picture(rendered.normal, scene.c2w[view])
    name = f"{snapshot.step:08d}_0_{view}"
    path = experiment.path("validations_fine", f"{name}.png")
    write_image(path, np.concatenate([to_uint8(rendered.rgb), to_uint8(photograph), normals]))
    write_image(experiment.path("normals", f"{name}.png"), normals)
    write_image(experiment.path("distances", f"{name}.png"), distance_picture(rendered.distance, rendered.opacity))
    distances = io.BytesIO()
    np.save(distances, rendered.distance)
    write_result(experiment.path("distances", f"{name}.npy"), distances.getvalue())
    compared = figures.compare(rendered, photograph, scene.mask_image(view, resolution_level))
    snapshot.log.info(f"view {view}: PSNR {figures.text(compared, snapshot.mask_first(scene))}, {path}")
    return path
