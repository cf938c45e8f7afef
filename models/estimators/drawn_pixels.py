"""Random pixels of all photographs, with their rays, drawn on the device where they fit its memory."""

from __future__ import annotations

import logging

import numpy as np

from data.rays import PixelBatch
from data.scenes.sampler import HostPixels
from data.scenes.scene import Scene
from models.machine import backend
from models.machine.backend import jt
from models.ops.draw import Draw, Photographs, draw_pixels
from models.structs import Var

MOST_OF_MEMORY = 0.25  # of the free memory of a GPU for the photographs
MOST_PIXELS = 2**31  # of all photographs: their places are int32


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
    logging.getLogger(__name__).warning(
        f"the photographs ({needed / 1e9:.3g} GB) stay in main memory, where batches are drawn more slowly: the GPU "
        f"takes {MOST_OF_MEMORY * free / 1e9:.3g} GB with 8 bits per channel; dataset.downscale reduces them"
    )
    return HostPixels(scene, windows)
