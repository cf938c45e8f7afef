"""Rays of an image and points of a grid that are computed at a time: as the conf says, or as many as fit.

Under `auto` it is the largest chunk that fits `train.memory_limit` by measurements on the run's own model
(models.machine.memory), made once and kept.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from data.rays import Rays
from models.config.blocks import TrainConfig
from models.config.strict import AUTO
from models.machine import memory
from models.methods.protocol import Model
from models.structs import StepContext

MOST_RENDER_RAYS = 2048  # a picture takes as long with more, and a tenth longer with half of it
MOST_GRID_POINTS = 2**16  # likewise a grid


def render_chunk(model: Model, rays: Rays, conf: TrainConfig) -> memory.Choice:
    """Rays of a picture at a time under `auto`; any rays will do, for a ray that shows much takes what this takes."""

    def render(count: int) -> object:
        columns = (rays.origins, rays.directions, rays.near, rays.far)
        some = Rays(*(np.resize(values, (count, values.shape[1])) for values in columns))
        return model.view_fully(some, StepContext(0, None))

    return memory.chunk_that_fits(MOST_RENDER_RAYS, render, conf.memory_limit)


def grid_chunk(distance: Callable[[np.ndarray], object], conf: TrainConfig) -> memory.Choice:
    """Points of a mesh's grid at a time; `distance` takes float32 [P, 3]."""
    return memory.chunk_that_fits(
        MOST_GRID_POINTS, lambda count: distance(np.zeros((count, 3), np.float32)), conf.memory_limit
    )


class ResultChunks:
    """The chunks of pictures and meshes, chosen at their first use."""

    def __init__(self, conf: TrainConfig) -> None:
        self._conf = conf
        self._rays = 0 if conf.render_chunk == AUTO else int(conf.render_chunk)
        self._points = 0

    def rays(self, model: Model, rays: Rays) -> int:
        """For pictures; all of them where the model shows none but whole ones."""
        if model.shows_pictures:
            return len(rays)
        self._rays = self._rays or render_chunk(model, rays, self._conf).chunk
        return self._rays

    def points(self, distance: Callable[[np.ndarray], object]) -> int:
        """For meshes."""
        self._points = self._points or grid_chunk(distance, self._conf).chunk
        return self._points
