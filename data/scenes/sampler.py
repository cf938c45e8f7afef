"""Samplers of random pixels: of one image at a time, and of all images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from data.cameras import camera_rays, rays_of
from data.errors import INVALID, UserError
from data.pixels import to_float
from data.rays import PixelBatch
from data.scenes.scene import Scene

MOST_BATCH_VIEWS = 32  # maximum number of views per batch of several: each view needs a separate look-up


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
        rays = camera_rays(np.stack([x, y], axis=-1), self._scene.intrinsics[view], self._scene.c2w[view])
        views = np.full(self._batch_size, view, dtype=np.int32)
        return PixelBatch(rays, *_seen(self._scene, views, x, y), views)


class HostPixels:
    """Pixels drawn on the host, uniform in the windows of some views."""

    def __init__(self, scene: Scene, windows: np.ndarray) -> None:
        """`windows`: int64 [V, 4], left, top, right and bottom of the pixels of each view, the last two exclusive."""
        self._scene, self._windows = scene, windows
        self._to_world = scene.c2w[:, :3, :3] @ np.linalg.inv(scene.intrinsics)

    def draw(self, generator: np.random.Generator, count: int) -> tuple[PixelBatch, np.ndarray]:
        """`count` pixels, and the jitter of their rays, float32 [R, 1] in [0, 1)."""
        pixels = self.pixels(generator, count, MOST_BATCH_VIEWS)
        return pixels, generator.random((count, 1), dtype=np.float32)

    def pixels(self, generator: np.random.Generator, count: int, most_views: int) -> PixelBatch:
        """`count` pixels of at most `most_views` views, sorted by view."""
        view, x, y = _draw(generator, self._windows, count, most_views)
        rays = rays_of(np.stack([x, y], axis=1), view, self._to_world, self._scene.c2w[:, :3, 3])
        return PixelBatch(rays, *_seen(self._scene, view, x, y), view)


@contextmanager
def damage_named() -> Iterator[None]:
    """Convert errors from reading a sampler's state to UserError."""
    try:
        yield
    except INVALID as error:
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


def windows_of(scene: Scene, centres: np.ndarray | None, side: float) -> np.ndarray:
    """The windows of pixels that may see the hull, int64 [V, 4]; whole images if its `centres` are None.

    The hull is given by the centres [P, 3] of its cells and their edge length.
    """
    views = range(scene.n_views)
    if centres is None:
        return np.array([[0, 0, *scene.size(view)] for view in views])
    return np.stack([_window(scene, centres, side, view) for view in views])


def _draw(
    generator: np.random.Generator, windows: np.ndarray, count: int, most_views: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """View, x and y [count] of random pixels of some views, uniform in their windows [V, 4] and sorted by view."""
    chosen = np.sort(generator.permutation(len(windows))[:most_views])
    sizes = (windows[chosen, 2:] - windows[chosen, :2]).astype(np.float64)
    area = sizes.prod(axis=1)
    shares = np.cumsum(area / area.sum())
    view = np.searchsorted(shares / shares[-1], np.sort(generator.random(count)), side="right")  # `choice` checks more
    places = windows[chosen[view], :2] + (generator.random((count, 2)) * sizes[view]).astype(np.int64)
    return chosen[view].astype(np.int32), places[:, 0], places[:, 1]


def _window(scene: Scene, centres: np.ndarray, side: float, view: int) -> np.ndarray:
    """The window of pixels of a view that may see the hull: left, top, right, bottom, the last two exclusive; int64
    [4].

    The hull is given by the centres [P, 3] of its cells and their edge length.
    """
    width, height = scene.size(view)
    whole = np.array([0, 0, width, height])
    to_camera = scene.intrinsics[view] @ scene.c2w[view, :3, :3].T
    x, y, depth = to_camera @ (centres - scene.c2w[view, :3, 3]).T
    if (depth <= side).any():
        return whole
    reach = side * scene.intrinsics[view, 0, 0] / depth.min() + 1
    low = np.floor([(x / depth).min() - reach, (y / depth).min() - reach])
    high = np.ceil([(x / depth).max() + reach, (y / depth).max() + reach]) + 1
    window = np.concatenate([np.clip(low, 0, whole[2:] - 1), np.clip(high, 1, whole[2:])]).astype(np.int64)
    return window if (window[2:] > window[:2]).all() else whole


def _seen(scene: Scene, view: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Colours [R, 3] and masks [R, 1] of pixels, sorted by view."""
    starts = np.flatnonzero(np.diff(view, prepend=-1)).tolist()
    parts = [(view[start], slice(start, end)) for start, end in zip(starts, [*starts[1:], len(view)], strict=True)]

    def values(images: Sequence[np.ndarray]) -> np.ndarray:
        chosen = [images[one][y[part], x[part]] for one, part in parts]
        alike = len({each.dtype for each in chosen}) == 1
        return to_float(np.concatenate(chosen)) if alike else np.concatenate([to_float(each) for each in chosen])

    return values(scene.images), None if scene.masks is None else values(scene.masks)[:, None]
