"""A trained model at one step, with everything that its outputs depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from data.io.clock import phase
from data.rays import Rays
from data.scenes.scene import Scene
from data.scenes.scene_checks import summary
from models.config.blocks import TrainConfig
from models.config.keys import outdated_line
from models.config.strict import AUTO
from models.machine import backend, memory
from models.methods.conf import flat
from models.methods.decisions import with_table
from models.methods.device_values import sizes_line, tiles_line
from models.methods.protocol import Model
from models.methods.registry import build_model
from models.results.experiment import Experiment, plan_of
from models.results.render import RenderedView, render_view
from models.runs.logger import RunLogger
from models.training.checkpoint import Checkpoint
from models.training.trainer import generators, restore_model

A_MOMENT = 1.0  # seconds; longer renderings have a progress bar


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
        """The image of rays [h * w] with shape (h, w); shows a progress bar if it takes longer than A_MOMENT."""
        chunk = self.chunks.rays(self.model, rays)
        bar = partial(self.log.progress, desc="image", unit="chunk", leave=False, delay=A_MOMENT)
        return render_view(self.model, rays, shape, chunk, self.step, bar)

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
    told = (summary(scene), *scene.notes) if isinstance(scene, Scene) else ()
    for text in filter(None, (sizes_line(experiment.conf), tiles_line(experiment.conf), *told)):
        (log.warn if isinstance(scene, Scene) and text in scene.doubts else log.info)(text)


MOST_RENDER_RAYS = 2048  # larger chunks are not faster, half of it is 10 % slower
MOST_GRID_POINTS = 2**16  # the same for grids


def render_chunk(model: Model, rays: Rays, conf: TrainConfig) -> memory.Choice:
    """Rays per chunk of an image under `auto`, measured with arbitrary rays: the content does not matter."""

    def render(count: int) -> object:
        columns = (rays.origins, rays.directions, rays.near, rays.far)
        some = Rays(*(np.resize(values, (count, values.shape[1])) for values in columns))
        return model.view_fully(some, 0)

    return memory.chunk_that_fits(MOST_RENDER_RAYS, render, conf.memory_limit)


def grid_chunk(distance: Callable[[np.ndarray], object], conf: TrainConfig) -> memory.Choice:
    """Points per chunk of a mesh grid; `distance` takes float32 [P, 3]."""
    return memory.chunk_that_fits(
        MOST_GRID_POINTS, lambda count: distance(np.zeros((count, 3), np.float32)), conf.memory_limit
    )


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
        self._rays = self._rays or render_chunk(model, rays, self._conf).chunk
        return self._rays

    def points(self, distance: Callable[[np.ndarray], object]) -> int:
        """Points per chunk of a mesh grid."""
        self._points = self._points or grid_chunk(distance, self._conf).chunk
        return self._points
