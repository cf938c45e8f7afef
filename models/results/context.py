"""A trained model at one step, with everything that its outputs depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from data.io.clock import phase
from data.rays import Rays
from data.scenes.scene import Scene
from data.scenes.scene_checks import summary
from models.conf import flat
from models.config.blocks import TrainConfig
from models.config.hocon import outdated_line
from models.config.strict import AUTO
from models.machine import backend, memory
from models.methods.protocol import Model
from models.methods.registry import build_model
from models.results.device_values import sizes_line, tiles_line
from models.results.experiment import Experiment, plan_of
from models.results.plan_rows import with_table
from models.results.render import RenderedView
from models.runs.logger import RunLogger
from models.training.checkpoint import Checkpoint
from models.training.trainer import generators, restore_model

PATIENCE_SECONDS = 1.0  # longer renderings have a progress bar


@dataclass(frozen=True)
class EvalContext:
    """A model at one step, with everything that its images, meshes and metrics depend on."""

    experiment: Experiment
    model: Model
    step: int
    seconds: float  # training time so far
    log: RunLogger
    chunks: ResultChunks
    pause: Callable[[], object] | None = None  # called between the parts of a mesh, for renderings of the viewer

    def parts(self, items: Iterable[Any], desc: str) -> Iterator[Any]:
        """`items`, the parts of a mesh, with a progress bar and a pause after each."""
        for item in self.log.progress(items, desc=desc, leave=False):
            yield item
            if self.pause is not None:
                self.pause()

    @phase("images")
    def render(self, rays: Rays, shape: tuple[int, int]) -> RenderedView:
        """The image of rays [h * w] with shape (h, w), with a progress bar after PATIENCE_SECONDS."""
        chunk = self.chunks.rays(self.model, rays)
        starts = range(0, len(rays), chunk)
        bar = self.log.progress(starts, desc="image", unit="chunk", leave=False, delay=PATIENCE_SECONDS)
        # Without jitter; the chunk size affects only memory and speed.
        parts = [self.model.view(rays.at(slice(start, start + chunk)), self.step) for start in bar]
        columns = zip(*(vars(part).values() for part in parts), strict=True)  # of RayView
        rgb, normal, distance, opacity = (np.concatenate(column).reshape(*shape, -1) for column in columns)
        return RenderedView(rgb, normal, distance[..., 0], opacity[..., 0])

    def at(self, checkpoint: Checkpoint) -> EvalContext:
        """The same model with the weights of a checkpoint, the averaged ones if there are any."""
        averaged = checkpoint.ema if self.experiment.conf.train.ema_decay > 0 else {}
        restore_model(self.model, replace(checkpoint, tensors=averaged or checkpoint.tensors))
        return replace(self, step=checkpoint.step, seconds=float(checkpoint.state.get("seconds", 0.0)))


def opened(experiment: Experiment, log: RunLogger) -> EvalContext:
    """The model of a checkpoint with its cameras, without what only a training needs.

    Raises UserError if the checkpoint does not fit conf or scene.
    """
    conf, checkpoint, views = experiment.conf, experiment.checkpoint, experiment.views
    assert checkpoint is not None  # `open_results` raises without one
    log_inputs(experiment, log)
    backend.allow_tf32(conf.train.tf32)
    model = build_model(conf.model, conf.train, generators(conf.train.seed)[0], plan_of(experiment))
    model.see(views)
    plan = with_table(plan_of(experiment), conf.model, conf.train, model.weights, flat(conf))
    experiment = replace(experiment, plan=plan)
    chunks = ResultChunks(conf.train)
    context = EvalContext(experiment, model, 0, 0.0, log, chunks).at(checkpoint)
    log.info(f"resuming from the checkpoint of step {context.step}")
    return context


def log_inputs(experiment: Experiment, log: RunLogger) -> None:
    """Log the device, sizes that depend on it, and the scene if its photographs are loaded."""
    device, scene = backend.device_info(), experiment.views
    log.info(device.line())
    for text in filter(None, (device.warning, outdated_line(experiment.conf.outdated))):
        log.warn(text)
    of_scene = (summary(scene), *scene.notes) if isinstance(scene, Scene) else ()
    for text in filter(None, (sizes_line(experiment.conf), tiles_line(experiment.conf), *of_scene)):
        (log.warn if isinstance(scene, Scene) and text in scene.doubts else log.info)(text)


MOST_RENDER_RAYS = 2048  # larger chunks are not faster, half of it is 10 % slower
MOST_GRID_POINTS = 2**16  # the same for grids


class ResultChunks:
    """The chunk sizes of images and meshes, determined at first use."""

    def __init__(self, conf: TrainConfig) -> None:
        self._conf = conf
        self._rays = 0 if conf.render_chunk == AUTO else int(conf.render_chunk)
        self._points = 0

    def rays(self, model: Model, rays: Rays) -> int:
        """Rays per chunk; all rays if the model renders only whole images."""
        if model.shows_pictures:
            return len(rays)
        if not self._rays:

            def render(count: int) -> object:  # arbitrary rays: the content does not matter
                columns = (rays.origins, rays.directions, rays.near, rays.far)
                return model.view_fully(Rays(*(np.resize(values, (count, values.shape[1])) for values in columns)), 0)

            self._rays = memory.chunk_that_fits(MOST_RENDER_RAYS, render, self._conf.memory_limit).chunk
        return self._rays

    def points(self, distance: Callable[[np.ndarray], object]) -> int:
        """Points per chunk of a mesh grid; `distance` takes float32 [P, 3]."""
        if not self._points:
            limit = self._conf.memory_limit
            self._points = memory.chunk_that_fits(
                MOST_GRID_POINTS, lambda count: distance(np.zeros((count, 3), np.float32)), limit
            ).chunk
        return self._points
