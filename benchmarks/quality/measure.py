"""Compute the metrics of a training's weights, in a separate process: `python -m benchmarks.quality.measure FOLDER
ASKED`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.quality import weights
from benchmarks.quality.job import CONF, Measurement, weights_file
from benchmarks.quality.surfaces import against_truth, from_points, read_points
from benchmarks.serve import serve
from data.scenes.load import load_held_out, load_scene
from models.evaluation import image_metrics
from models.evaluation.mesh_distance import read_mesh
from models.experiment import background
from models.machine import backend
from models.methods.conf import parse_config
from models.methods.registry import build_model
from models.requests import UNIT
from models.results.chunks import ResultChunks
from models.results.meshes import RADII
from models.results.render import render_view
from models.structs import StepContext
from models.surface import clean, sparse
from models.surface.extraction import EmptySurfaceError
from models.surface.formats import write_surface
from models.surface.mesh import About, Surface

OF_VIEWS = ("psnr", "ssim", "psnr_mask", "ssim_mask", "iou")


class Judge:
    """A model whose weights are exchanged, and its references."""

    def __init__(self, folder: Path, asked: Measurement) -> None:
        self._folder, self._asked = folder, asked
        self._conf = parse_config((folder / CONF).read_text(encoding="utf-8"), str(folder / CONF))
        behind = background(self._conf)
        self._scene = load_scene(self._conf.dataset, behind)
        self._held_out = load_held_out(self._conf.dataset, self._scene, behind)
        self._truth = read_mesh(asked.ground_truth) if asked.ground_truth else None
        self._points = read_points(Path(asked.points)) if asked.points else None
        self._model = build_model(self._conf.model, self._conf.train, np.random.default_rng(0))
        self._chunks = ResultChunks(self._conf.train)

    def figures(self, step: str) -> dict[str, Any]:
        """Of the weights of a step; `note` says why there is no mesh."""
        weights.load(weights_file(self._folder, int(step)), self._model)
        found = self._of_views(int(step))
        try:
            found |= self._of_surface(int(step))
        except EmptySurfaceError as error:
            found["note"] = str(error)
        return found

    def _of_surface(self, step: int) -> dict[str, Any]:
        """The mesh without small pieces, as `--mode validate_mesh` leaves them out; it is kept in the folder."""
        level_set = self._model.level_set
        if level_set is None:
            return {"note": "this kind of model has no surface"}
        chunk = self._chunks.points(level_set.outward)
        low, high = self._scene.bbox_min, self._scene.bbox_max
        extracted = sparse.extract(level_set, low, high, self._asked.resolution, level_set.threshold, chunk)
        cleaned = clean.without_dust(extracted.mesh)
        about = About(UNIT, RADII, step, self._folder.name)
        write_surface(Surface(cleaned.mesh), self._folder / f"mesh_{step:08d}.ply", about)
        found: dict[str, Any] = {"pieces": cleaned.kept, "removed_pieces": cleaned.removed}
        if self._truth is not None:
            found |= against_truth(cleaned.mesh, self._truth, self._asked.threshold, self._asked.samples)
        if self._points is not None:
            found |= from_points(cleaned.mesh, self._points)
        return found

    def _of_views(self, step: int) -> dict[str, Any]:
        """The means over the held-out views."""
        held_out, level = self._held_out, self._asked.level
        if held_out is None:
            return {}
        moment = StepContext(step, self._conf.train.background_rgb)
        views = []
        for view in chosen(held_out.n_views, self._asked.views):
            rays, shape = held_out.rays(view, level)
            rendered = render_view(self._model, rays, shape, self._chunks.rays(self._model, rays), moment)
            views.append(
                image_metrics.compare(rendered, held_out.rgb_image(view, level), held_out.mask_image(view, level))
            )
        mean = image_metrics.mean(views)
        return {name: getattr(mean, name) for name in OF_VIEWS}


def chosen(count: int, most: int) -> list[int]:
    """At most `most` of `count` views, evenly spread; all for 0."""
    if most == 0 or most >= count:
        return list(range(count))
    return [index * count // most for index in range(most)]


def main(arguments: list[str]) -> None:
    """Serve the folder of a run."""
    backend.select("cpu")
    judge = Judge(Path(arguments[0]), Measurement(**json.loads(arguments[1])))
    serve({"figures": judge.figures})


if __name__ == "__main__":
    main(sys.argv[1:])
