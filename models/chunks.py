"""The chunks of a run: rays of a training step, rays of a picture, points of a mesh's grid.

Each is what the conf says or, under `auto`, the largest that fits `train.memory_limit` by measurements on the run's
own model (models.memory), made once and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from data.rays import Rays
from models import memory
from models.config.blocks import TrainConfig
from models.config.strict import AUTO
from models.kinds.protocol import Model, Moment
from models.training.trainer import Trainer

MOST_RENDER_RAYS = 2048  # a picture takes as long with more, and a tenth longer with half of it
MOST_GRID_POINTS = 2**16  # likewise a grid
FLOAT_BYTES = 4
# Per parameter while Adam updates it: the gradient, two new moments and the new weight, beside the old ones.
UPDATE_COPIES = 4
STATE_KEY = "ray_chunk"  # in the state of a checkpoint


def training_chunk(trainer: Trainer) -> memory.Choice:
    """The rays of a batch that are differentiated at a time under `auto`; leaves the trainer as it was."""
    state = trainer.sampler.state()
    batch = trainer.sampler.next()
    trainer.sampler.restore(state)
    update = UPDATE_COPIES * FLOAT_BYTES * sum(parameter.numel() for parameter in trainer.optimizer.parameters)

    def peak(chunk: int) -> int:
        part = batch.part(0, 2 * chunk)  # two chunks tell whether the first one's memory serves the second
        # Any jitter does, and none may be drawn from the run's generator.
        noise = trainer.model.draw_noise(len(part), np.random.default_rng(0))
        return update + memory.growth(lambda: trainer.gradient_of(part, noise, chunk))

    memory.release()
    return memory.largest_chunk(len(batch), peak, lambda: memory.budget(trainer.conf.memory_limit))


def settled_chunk(conf: TrainConfig, state: Mapping[str, Any]) -> int | None:
    """The chunk that needs no measurement: the conf's, or the one a checkpoint of the same sizes went on with.

    A resumed run keeps its chunk, so that it repeats the unbroken run bit for bit.
    """
    if conf.ray_chunk != AUTO:
        return min(int(conf.ray_chunk), conf.batch_size)
    kept = state.get(STATE_KEY)
    is_same = isinstance(kept, dict) and kept.get("for") == _sizes(conf)
    return int(kept["rays"]) if is_same else None


def chunk_state(conf: TrainConfig, chunk: int) -> dict[str, Any]:
    """What `settled_chunk` reads back from a checkpoint's state."""
    return {STATE_KEY: {"rays": chunk, "for": _sizes(conf)}}


def render_chunk(model: Model, rays: Rays, conf: TrainConfig) -> memory.Choice:
    """Rays of a picture at a time under `auto`; any rays will do, for a ray that shows much takes what this takes."""

    def peak(count: int) -> int:
        some = Rays(*(_repeated(a, count) for a in (rays.origins, rays.directions, rays.near, rays.far)))
        return memory.growth(lambda: model.view_fully(some, Moment(0, None)))

    memory.release()
    return memory.largest_chunk(MOST_RENDER_RAYS, peak, lambda: memory.budget(conf.memory_limit))


def grid_chunk(distance: Callable[[np.ndarray], object], conf: TrainConfig) -> memory.Choice:
    """Points of a mesh's grid at a time; `distance` takes float32 [P, 3]."""

    def peak(count: int) -> int:
        return memory.growth(lambda: distance(np.zeros((count, 3), np.float32)))

    memory.release()
    return memory.largest_chunk(MOST_GRID_POINTS, peak, lambda: memory.budget(conf.memory_limit))


class ResultChunks:
    """The chunks of pictures and meshes, chosen at their first use."""

    def __init__(self, conf: TrainConfig) -> None:
        self._conf = conf
        self._rays = 0 if conf.render_chunk == AUTO else int(conf.render_chunk)
        self._points = 0

    def rays(self, model: Model, rays: Rays) -> int:
        """For pictures."""
        self._rays = self._rays or render_chunk(model, rays, self._conf).chunk
        return self._rays

    def points(self, distance: Callable[[np.ndarray], object]) -> int:
        """For meshes."""
        self._points = self._points or grid_chunk(distance, self._conf).chunk
        return self._points


def _sizes(conf: TrainConfig) -> list[Any]:
    """What a chunk was chosen for, as JSON."""
    return [conf.batch_size, conf.memory_limit]


def _repeated(values: np.ndarray, count: int) -> np.ndarray:
    """`count` rows, the given ones over and over."""
    return np.resize(values, (count, values.shape[1]))
