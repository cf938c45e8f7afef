"""Random pixels of all photographs, with their rays."""

from __future__ import annotations

import numpy as np

from data.cameras import rays_of
from data.io.images import to_float
from data.io.streams import complain
from data.rays import PixelBatch
from data.scenes.scene import Scene
from models.machine import backend
from models.machine.backend import jt
from models.ops.draw import Draw, Photographs, draw_pixels
from models.structs import Var

MOST_VIEWS = 32  # maximum number of views per batch on the host: each view needs a separate look-up
MOST_OF_MEMORY = 0.25  # of the free memory of a GPU for the photographs
MOST_PIXELS = 2**31  # of all photographs: their places are int32


class HostPixels:
    """Pixels drawn on the host, uniform in the windows of some views."""

    def __init__(self, scene: Scene, windows: np.ndarray) -> None:
        """`windows`: int64 [V, 4], left, top, right and bottom of the pixels of each view, the last two exclusive."""
        self._scene, self._windows = scene, windows
        self._to_world = scene.c2w[:, :3, :3] @ np.linalg.inv(scene.intrinsics)

    def draw(self, generator: np.random.Generator, count: int) -> tuple[PixelBatch, np.ndarray]:
        """`count` pixels, and the jitter of their rays, float32 [R, 1] in [0, 1)."""
        pixels = self.pixels(generator, count, MOST_VIEWS)
        return pixels, generator.random((count, 1), dtype=np.float32)

    def pixels(self, generator: np.random.Generator, count: int, most_views: int) -> PixelBatch:
        """`count` pixels of at most `most_views` views, sorted by view."""
        view, x, y = _draw(generator, self._windows, count, most_views)
        rays = rays_of(np.stack([x, y], axis=1), view, self._to_world, self._scene.c2w[:, :3, 3])
        return PixelBatch(rays, *_seen(self._scene, view, x, y), view)


class DevicePixels:
    """Pixels drawn on the device, uniform in the windows of all views."""

    def __init__(self, scene: Scene, windows: np.ndarray) -> None:
        """The same as `HostPixels`, for photographs of 8 bits."""
        sizes = np.array([scene.size(view) for view in range(scene.n_views)])
        starts = np.cumsum([0, *sizes.prod(axis=1)[:-1]])
        windows = np.column_stack([starts, sizes[:, 0], windows[:, :2], windows[:, 2:] - windows[:, :2]])
        shares = np.cumsum(windows[:, 4:].prod(axis=1, dtype=np.float64))
        to_world = scene.c2w[:, :3, :3] @ np.linalg.inv(scene.intrinsics)
        cameras = np.column_stack([to_world.reshape(-1, 9), scene.c2w[:, :3, 3]])
        masks = None if scene.masks is None else jt.array(np.concatenate([mask.reshape(-1) for mask in scene.masks]))
        self._photographs = Photographs(
            jt.array(windows.astype(np.int32)),
            jt.array(shares / shares[-1], dtype="float64"),
            jt.array(cameras, dtype="float64"),
            jt.array(np.concatenate([image.reshape(-1, 3) for image in scene.images])),
            masks,
        )
        jt.sync([value for value in vars(self._photographs).values() if value is not None])

    def draw(self, generator: np.random.Generator, count: int) -> tuple[PixelBatch, Var]:
        """`count` pixels and the jitter of their rays, as Vars, sorted by view."""
        (first, second), turn = generator.integers(2**31, size=2).tolist(), np.float64(generator.random())
        masked = int(self._photographs.masks is not None)
        return draw_pixels(self._photographs, Draw(count, first, second, turn, masked))


def pixels_of(scene: Scene, windows: np.ndarray) -> HostPixels | DevicePixels:
    """On a GPU, pixels that are drawn there, if the photographs fit its memory."""
    if backend.device_info().name != "cuda":
        return HostPixels(scene, windows)
    images = [*scene.images, *(scene.masks or ())]
    needed, free = sum(image.nbytes for image in images), backend.device_free_bytes()
    pixels = sum(image.shape[0] * image.shape[1] for image in scene.images)
    if needed <= MOST_OF_MEMORY * free and pixels < MOST_PIXELS and all(image.dtype == np.uint8 for image in images):
        return DevicePixels(scene, windows)
    complain(
        f"the photographs ({needed / 1e9:.3g} GB) stay in main memory, where batches are drawn more slowly: the GPU "
        f"takes {MOST_OF_MEMORY * free / 1e9:.3g} GB with 8 bits per channel; dataset.downscale reduces them"
    )
    return HostPixels(scene, windows)


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
    view = np.sort(generator.choice(len(chosen), count, p=area / area.sum()))
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
    views, starts = np.unique(view, return_index=True)
    parts = [(one, slice(start, end)) for one, start, end in zip(views, starts, [*starts[1:], len(view)], strict=True)]
    rgb = np.concatenate([to_float(scene.images[one][y[part], x[part]]) for one, part in parts])
    if scene.masks is None:
        return rgb, None
    return rgb, np.concatenate([to_float(scene.masks[one][y[part], x[part]]) for one, part in parts])[:, None]
