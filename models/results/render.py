"""Render whole images in chunks of rays, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import cv2
import numpy as np

from data.io.images import to_uint8
from data.rays import Rays
from models.methods.protocol import Model
from models.structs import RayView

# cameras look along +z with y down; normal maps have y up and z towards the viewer
PICTURE_AXES = np.array([1.0, -1.0, -1.0])
SMALLEST_SPAN = 1e-6  # smallest range of distances, to avoid division by zero
ERROR_OF_WHITE = 0.25  # mean difference of the channels that has the brightest colour of an error map
LEAST_ERROR = 1e-10  # mean square of two images; a level of 8 bits has 1.5e-5
FARTHEST_GREY = 0.15  # grey value of the farthest point, to differ from empty pixels


Progress = Callable[[Iterable[int]], Iterable[int]]  # wraps a sequence of chunk starts, such as tqdm


@dataclass(frozen=True)
class RenderedView:
    """A rendered image, float32."""

    rgb: np.ndarray  # [h, w, 3] in [0, 1]
    normal: np.ndarray  # [h, w, 3], working frame, outwards; length up to about opacity
    distance: np.ndarray  # [h, w], working-frame units along the unit ray; 0 where the object is not seen
    opacity: np.ndarray  # [h, w], of the object, in [0, 1]


def render_view(
    model: Model, rays: Rays, shape: tuple[int, int], chunk: int, step: int, progress: Progress = iter
) -> RenderedView:
    """Render rays [h * w] without jitter, `chunk` at a time; the chunk size affects only memory and speed."""
    seen = render_rays(model, rays, chunk, step, progress)
    rgb, normal, distance, opacity = (column.reshape(*shape, -1) for column in vars(seen).values())
    return RenderedView(rgb, normal, distance[..., 0], opacity[..., 0])


def render_rays(model: Model, rays: Rays, chunk: int, step: int, progress: Progress = iter) -> RayView:
    """Render R rays; the graph of each chunk is freed."""
    parts = [model.view(rays.at(slice(start, start + chunk)), step) for start in progress(range(0, len(rays), chunk))]
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return RayView(*(np.concatenate(column) for column in columns))


def normal_picture(normal: np.ndarray, c2w: np.ndarray) -> np.ndarray:
    """Normals [h, w, 3] of the working frame in camera coordinates, uint8, 127.5 (1 + n) as in normal maps.

    Red is right, green is up, blue is towards the camera.
    """
    return to_uint8(normal @ c2w[:3, :3] * PICTURE_AXES * 0.5 + 0.5)


def distance_picture(distance: np.ndarray, opacity: np.ndarray, span: tuple[float, float] | None = None) -> np.ndarray:
    """Distances [h, w] as uint8 grey values: near is bright, far is dark, empty is black.

    `span`: the distances of the brightest and the darkest value; None for those of the image.
    """
    seen = opacity > 0.5
    if not seen.any():
        return np.zeros(distance.shape, np.uint8)
    near, far = span or (distance[seen].min(), distance[seen].max())
    share = np.clip((far - distance) / max(far - near, SMALLEST_SPAN), 0.0, 1.0)
    return np.where(seen, to_uint8(FARTHEST_GREY + (1.0 - FARTHEST_GREY) * share), 0).astype(np.uint8)


def error_picture(rendered: np.ndarray, photograph: np.ndarray) -> np.ndarray:
    """The error map of a rendering [h, w, 3], uint8 [h, w, 3]: black for no error, then red, then yellow."""
    error = np.abs(rendered - photograph).mean(axis=-1) / ERROR_OF_WHITE
    return cv2.cvtColor(cv2.applyColorMap(to_uint8(error), cv2.COLORMAP_INFERNO), cv2.COLOR_BGR2RGB)


def psnr(rendered: np.ndarray, photograph: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB of two images in [0, 1] of equal shape, over all pixels and channels.

    At most 100: an image without error counts in a mean, too.
    """
    error = float(np.mean((rendered.astype(np.float64) - photograph) ** 2))
    return -10.0 * np.log10(max(error, LEAST_ERROR))
