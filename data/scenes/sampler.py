"""The sampler of random pixels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from data.cameras import camera_rays
from data.errors import DAMAGE, UserError
from data.io.images import to_float
from data.rays import PixelBatch
from data.scenes.scene import Scene


class ViewSampler:
    """An endless sequence of images in random order, drawn anew after each pass."""

    def __init__(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> None:
        self._scene = scene
        self._batch_size = batch_size
        self._generator = generator
        self._order = generator.permutation(scene.n_views)
        self._position = 0

    def _next_view(self) -> int:
        if self._position == len(self._order):
            self._order = self._generator.permutation(self._scene.n_views)
            self._position = 0
        self._position += 1
        return int(self._order[self._position - 1])

    def state(self) -> dict[str, Any]:
        """The state that determines the next batches, as JSON values (for numpy's default generator, PCG64)."""
        return {
            "order": self._order.tolist(),
            "position": self._position,
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`: with the same scene and batch size, the same batches follow.

        Raises UserError, with nothing changed, if the state does not fit the scene or the type of the generator.
        """
        views = self._scene.n_views
        with damage_named():
            order, position = [int(view) for view in state["order"]], int(state["position"])
            generator = dict(state["generator"])
        require_views(len(order), self._scene)
        if sorted(order) != list(range(views)) or not 0 <= position <= views:
            raise UserError("the sampler's state in the checkpoint is damaged (its order is not a permutation)")
        restore_generator(self._generator, generator)
        self._order = np.array(order)
        self._position = position


class PixelSampler(ViewSampler):
    """An endless sequence of pixel batches, each from one image.

    As published (exp_runner.py, train; models/dataset.py, gen_random_rays_at; https://github.com/Totoro97/NeuS at
    commit 6e0a230): the images are taken in a random order, which is drawn anew after each pass; the pixels of a batch
    are uniform over the image and may repeat.
    """

    def next(self) -> PixelBatch:
        """The next batch of R = batch_size pixels: rays, float32 colours and mask, index of the image."""
        view = self._next_view()
        width, height = self._scene.size(view)
        x = self._generator.integers(width, size=self._batch_size)
        y = self._generator.integers(height, size=self._batch_size)
        return pixel_batch(self._scene, view, x, y)


@contextmanager
def damage_named() -> Iterator[None]:
    """Convert errors from reading a sampler's state to UserError."""
    try:
        yield
    except DAMAGE as error:
        raise UserError(f"the sampler's state in the checkpoint is damaged ({error!r})") from error


def require_views(count: int, scene: Scene) -> None:
    """Raises UserError if a checkpoint was made with another number of images."""
    if count != scene.n_views:
        raise UserError(
            f"the checkpoint was made with {count} photographs and the scene {scene.name} has {scene.n_views}; "
            "use the scene it was trained on"
        )


def restore_generator(generator: np.random.Generator, state: Mapping[str, Any]) -> None:
    """Restore a saved generator state; raises UserError, with nothing changed, for a state that does not fit."""
    try:
        generator.bit_generator.state = dict(state)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError("the sampler's random state in the checkpoint is damaged or of another generator") from error


def pixel_batch(scene: Scene, view: int, x: np.ndarray, y: np.ndarray) -> PixelBatch:
    """The colours and mask of image `view` at the integer pixels x, y [R], with the rays through their centres."""
    pixels = np.stack([x, y], axis=-1)
    return PixelBatch(
        rays=camera_rays(pixels, scene.intrinsics[view], scene.c2w[view]),
        rgb=to_float(scene.images[view][y, x]),
        mask=None if scene.masks is None else to_float(scene.masks[view][y, x])[:, None],
        view=np.full(len(x), view, dtype=np.int32),
    )
