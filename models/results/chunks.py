"""Chunk sizes for the rays of images and the points of grids.

Under `auto` the size is the largest one that fits `train.memory_limit`, measured once on the model
(models.machine.memory).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from data.rays import Rays
from models.config.blocks import TrainConfig
from models.config.strict import AUTO
from models.machine import memory
from models.methods.protocol import Model

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
